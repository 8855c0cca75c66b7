"""What tests share: events, files, small models, fakes."""
