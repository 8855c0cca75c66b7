"""Reads the JSON of rocprofv3 (ROCm)."""
