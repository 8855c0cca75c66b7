"""The groups of actions that the app is made of."""
