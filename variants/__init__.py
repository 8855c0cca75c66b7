"""Models, workloads, the variants of a decode step, measuring them, and the app's worker."""
