"""Reads files into a `Trace`: Kineto, Nsight Systems, rocprofv3, recordings, ranks."""
