"""The Textual app: it draws what `analyzer` computed and what the worker process sends."""
