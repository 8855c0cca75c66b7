"""A whole trace as tracks: slices over time, the columns of a screen, and moving along them."""
