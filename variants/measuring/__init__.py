"""Measures one run of a variant: timed steps, then a profiled window."""
