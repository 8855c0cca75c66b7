"""What a step consists of, from kernel names alone: layers and the role of each op."""
