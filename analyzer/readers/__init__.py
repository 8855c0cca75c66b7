"""Reads files into a `Trace`: Kineto (torch.profiler), Nsight Systems, rocprofv3, recordings, ranks."""
