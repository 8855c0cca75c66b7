"""Colours, themes, glyphs, and what the terminal can show."""
