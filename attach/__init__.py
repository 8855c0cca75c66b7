"""Windows of the decode steps of processes and servers that run, without a change to them."""
