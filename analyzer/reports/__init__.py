"""Assembles reports from the analyses."""
