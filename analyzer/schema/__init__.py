"""The structures of reports: what the JSON holds."""
