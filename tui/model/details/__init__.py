"""The lines of the details pane for each kind of pick."""
