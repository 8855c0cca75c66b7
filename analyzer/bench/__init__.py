"""`bench analyzer`: the analyzer measured, beside a peer."""
