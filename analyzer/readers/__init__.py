"""Reads files into a `Trace`: Kineto (torch.profiler), Nsight Systems, recordings, ranks."""
