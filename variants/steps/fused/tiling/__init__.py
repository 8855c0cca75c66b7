"""How the fused kernels cut their work: rules, measured tables, and the tuner."""
