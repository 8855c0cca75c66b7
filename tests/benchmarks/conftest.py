"""The scripts run on the GPU, or in Triton's interpreter."""

from pathlib import Path

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)

# The scripts are part of a checkout, not of a source distribution.
collect_ignore_glob = [] if (Path(__file__).parents[2] / "benchmarks").is_dir() else ["test_*.py"]
