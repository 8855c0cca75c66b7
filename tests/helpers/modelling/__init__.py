"""What models consist of, for tests."""
