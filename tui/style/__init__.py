"""Colours, themes and glyphs."""
