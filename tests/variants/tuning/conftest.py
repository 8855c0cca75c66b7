"""Kernel benchmarks run on the GPU, or in Triton's interpreter."""

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)
