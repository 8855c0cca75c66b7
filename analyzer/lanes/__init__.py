"""A trace as rows over time: its lanes, what each column of a row shows, and moving along them."""
