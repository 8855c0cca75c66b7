"""Why the GPU was idle: classes, and the list of gaps."""
