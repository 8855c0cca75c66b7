"""Reads Perfetto traces through Perfetto's own trace_processor."""
