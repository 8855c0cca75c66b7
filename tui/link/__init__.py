"""Where the app's data comes from: a worker, a recording, or a replay."""
