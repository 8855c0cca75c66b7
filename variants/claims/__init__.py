"""Published claims, each measured again beside what it was compared with."""
