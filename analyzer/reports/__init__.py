"""Builds reports from timelines, attribution and rooflines."""
