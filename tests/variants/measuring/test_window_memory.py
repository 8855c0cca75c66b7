"""The memory that a window takes, in a process of its own: what ran before decides what a heap
holds."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.helpers.host_memory import COUNTED

MATRICES, ROWS, COLUMNS = 24, 1024, 4096
# Each step makes a matrix anew for every product, as the layers of 4 bits do.
WINDOW = """
import sys
from pathlib import Path
from types import SimpleNamespace
import msgspec, torch
from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.kernels.host.packing import packing_of
from decodescope.variants.measuring.window import WindowPlan, capture_window
from decodescope.variants.model.quantized_weights import QuantizedLinear
from tests.helpers.host_memory import peak_growth
from tests.helpers.recordings import capture

matrices, rows, columns = map(int, sys.argv[2:])
packing = packing_of("int4", columns)
words = torch.ones(rows, packing.width, dtype=torch.int32)
linear, x = QuantizedLinear(words, None, packing=packing), torch.ones(1, columns)

def work():
    for _ in range(matrices):
        linear(x)

step = SimpleNamespace(step=work, annotate_layers=lambda enabled: None, node_paths=dict)
info = msgspec.structs.replace(capture(), device="cpu", lead_steps=0)
session = ProfilerSession("cpu")
session.warm_up()
work()
window = step, WindowPlan(0, 0, 1), info, Path(sys.argv[1]), session, None, lambda ids: None
print(peak_growth(lambda: capture_window(*window)))
"""


@pytest.mark.skipif(not COUNTED, reason="no /proc")
def test_a_window_on_a_cpu_keeps_no_matrix_that_its_steps_make(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WINDOW, str(tmp_path / "window.json")]
    command += map(str, (MATRICES, ROWS, COLUMNS))
    grown = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert grown < 4 * MATRICES * ROWS * COLUMNS
