"""Reads trees of totals that Proton writes."""
