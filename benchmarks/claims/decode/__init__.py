"""Claims about the decode step of whole models: tokens per second, GPU time, accuracy."""
