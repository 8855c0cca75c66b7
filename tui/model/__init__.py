"""The state that the app shows, and the selection, without widgets."""
