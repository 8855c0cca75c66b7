"""Records a CUDA graph's capture and its replays, for the tests of `--capture`, on a GPU.

`python -m tools.make_capture_pair -o tests/data` writes h200_graph_capture.json.gz and
h200_graph_replays.json.gz (named by the GPU): one decode step of a Llama of 6 layers with random
weights, recorded as docs/engines.md says. Only the events that a reader uses are kept: of Python's,
those of modules.
"""

import argparse
import gzip
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import StaticCache

from tools.foreign_models import small_decoder

_CATEGORIES = (
    "cpu_op",
    "cuda_driver",
    "cuda_runtime",
    "gpu_memcpy",
    "gpu_memset",
    "kernel",
    "user_annotation",
)
_KEYS = ("schemaVersion", "deviceProperties", "baseTimeNanoseconds", "displayTimeUnit")
_STEPS, _PROMPT = 4, 128


def slimmed(document: dict[str, Any]) -> dict[str, Any]:
    """The trace without what no reader uses: flows, Python functions, names of files."""
    events = [
        event
        for event in document["traceEvents"]
        if event.get("cat") in _CATEGORIES or str(event.get("name", "")).startswith("nn.Module: ")
    ]
    return {key: document[key] for key in _KEYS if key in document} | {"traceEvents": events}


def traced(path: Path, run: Callable[[], None]) -> None:
    """Profile what `run` does, with Python stacks, and write it slimmed."""
    with profile(
        activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA], with_stack=True
    ) as profiler:
        run()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        whole = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(whole))
        write_slimmed(whole.read_bytes(), path)


def write_slimmed(data: bytes, path: Path) -> None:
    """Write a recorded trace slimmed."""
    with gzip.GzipFile(path, "wb", 9, mtime=0) as file:
        file.write(json.dumps(slimmed(json.loads(data)), separators=(",", ":")).encode())


@torch.inference_mode()
def record(folder: Path, gpu: str) -> None:
    """Capture a decode step as a graph, and replay it."""
    config, model = small_decoder("llama")
    cache = StaticCache(config=config, max_cache_len=2 * _PROMPT)
    prompt = torch.randint(0, 1000, (1, _PROMPT), device="cuda")
    token = model(prompt, past_key_values=cache).logits[:, -1:].argmax(-1)
    position = torch.full((1, 1), _PROMPT, device="cuda")

    def step() -> None:
        output = model(token, position_ids=position, past_key_values=cache)
        output.logits[:, -1:].argmax(-1)

    side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()

    def capture() -> None:
        with torch.cuda.graph(graph):
            step()

    def replays() -> None:
        for index in range(_STEPS):
            with record_function(f"decode_step_{index}"):
                graph.replay()

    traced(folder / f"{gpu}_graph_capture.json.gz", capture)
    graph.replay()
    traced(folder / f"{gpu}_graph_replays.json.gz", replays)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, required=True)
    folder = parser.parse_args().output
    gpu = torch.cuda.get_device_name().replace("NVIDIA ", "").split()[0].lower()
    record(folder, gpu)


if __name__ == "__main__":
    main()
