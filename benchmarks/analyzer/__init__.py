"""`analyzer`: the cost of the analyzer, compared with a peer's."""
