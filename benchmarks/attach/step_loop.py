"""A PyTorch process on the CPU that does a small step every few milliseconds without end, so that
its memory shows what windows leave in it."""

import sys
import time

import torch
from torch.profiler import record_function


def main() -> None:
    """Print "ready" after the first step; then continue until the process is ended."""
    layer, hidden = torch.nn.Linear(64, 64), torch.randn(1, 64)
    with torch.inference_mode():
        layer(hidden)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            with record_function("decode_step"):
                layer(hidden)
            time.sleep(0.005)


if __name__ == "__main__":
    main()
