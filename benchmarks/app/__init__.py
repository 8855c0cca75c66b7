"""The app, in a terminal or headless: times, memory, and what it costs the run."""
