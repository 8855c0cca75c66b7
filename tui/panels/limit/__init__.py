"""How far a step is from the physical limit."""
