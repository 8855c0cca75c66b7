"""Real and hand-made traces with something planted into them."""
