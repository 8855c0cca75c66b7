"""`quality`: what formats cost in accuracy."""
