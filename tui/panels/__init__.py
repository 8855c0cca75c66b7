"""The panels of the main screen: each draws one part of the view, line by line."""
