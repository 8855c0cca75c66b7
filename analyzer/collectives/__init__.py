"""Collectives of several ranks: matched, split into waiting and transfer, stragglers and skew."""
