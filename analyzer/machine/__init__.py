"""Facts about this machine: its GPU's meters, its versions."""
