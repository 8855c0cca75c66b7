"""Figures and names as they are shown."""
