"""The pages of the main screen: which panels each shows, and where."""
