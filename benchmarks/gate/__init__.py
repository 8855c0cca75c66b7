"""How often the gate is right, for planted changes in real and in simulated noise."""
