"""Apps and views for tests of pages."""
