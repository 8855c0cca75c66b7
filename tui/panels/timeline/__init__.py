"""The timeline of a whole window: its tracks, its keys, and the mouse."""
