"""The panels of the comparison page."""
