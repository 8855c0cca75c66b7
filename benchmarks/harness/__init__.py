"""What measurements share: records, environments and tables."""
