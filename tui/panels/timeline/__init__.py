"""The timeline of a whole window: its lanes, its keys, and the mouse."""
