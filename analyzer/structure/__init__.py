"""The structure of a step from kernel names alone: layers, and the role of each op."""
