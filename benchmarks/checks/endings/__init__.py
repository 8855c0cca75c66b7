"""Commands ended by a signal at random moments: how long that takes, and what is left behind."""
