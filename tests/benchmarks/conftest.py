"""Benchmarks run on the GPU, or in Triton's interpreter."""

from pathlib import Path

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)
from tests.helpers.kernel_fixtures import assert_close, assert_reset, inputs  # noqa: F401

# Benchmarks are part of a checkout, not of a source distribution.
collect_ignore_glob = [] if (Path(__file__).parents[2] / "benchmarks").is_dir() else ["*"]
