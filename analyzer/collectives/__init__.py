"""Collectives of several ranks: matched, split into wait and transfer, stragglers and skew."""
