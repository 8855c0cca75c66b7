"""Which model, which decode step: workloads, model loading, the variants and the worker."""
