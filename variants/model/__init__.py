"""The model and its workload: source, loading, presets, prompts."""
