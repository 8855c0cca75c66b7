"""The tiles of the fused kernels: rules, measured tables, and the tuner."""
