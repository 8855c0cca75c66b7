"""Reads Nsight Systems SQLite exports."""
