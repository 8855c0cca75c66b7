"""Every table of figures, declared once: its rows, and its columns for every output."""
