"""What measurements share: turns of entrants, cold graphs, records and tables."""
