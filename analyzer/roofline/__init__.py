"""How fast it could be: bytes, FLOPs, peaks, the waterfall down to the limit, the verdict."""
