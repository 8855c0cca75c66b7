"""Messages between the app and the processes that decode, and their frames."""
