"""Claims run on the GPU, or in Triton's interpreter with a clock that reads from a script."""

import tests.helpers.triton_mode  # noqa: F401  (chooses the interpreter)
