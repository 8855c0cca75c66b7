"""Reports as text: terminal tables, Markdown, CSV. Views read reports and compute no figure."""
