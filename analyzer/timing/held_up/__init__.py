"""What is not of the steps: what held a device up, why, and the figures without it."""
