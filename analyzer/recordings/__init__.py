"""Recordings of live sessions, and those that come with the package."""
