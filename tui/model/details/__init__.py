"""What the details pane says of each kind of pick."""
