"""Inference servers that run: their metrics, and windows through their own profile endpoints."""
