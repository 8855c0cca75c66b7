"""Whole decode steps: variants, revisions, batches, contexts and models."""
