"""A process that decodes without end and keeps the time of each token; nothing in it looks at a
profiler. `python -m benchmarks.attach.decode_loop MODEL VARIANT CONTEXT TOKENS CLOCK_FILE`.

After TOKENS tokens, decoding starts again at the prompt's end. The clock starts with the second
round, as cuDNN plans its attention at each KV length that is new to the process. CLOCK_FILE gets
the wall clock in ns when the host has each token, as int64.
"""

import struct
import sys
import time
from pathlib import Path

from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.measuring.preparation import prepare, require_weights
from decodescope.variants.registry import build_variant


def say(stage: str) -> None:
    """Stages go to stderr."""
    sys.stderr.write(f"{stage}\n")


def main(model: str, variant: str, context: int, tokens: int, clock_file: Path) -> None:
    """Decode until the process is ended."""
    config = WorkerConfig(variant=variant, batch=1, tokens=tokens, model=model, context=context)
    prepared = require_weights(prepare(config, say), variant, say)
    step = build_variant(variant, prepared.loaded, prepared.workload, prepared.device)
    step.prefill(prepared.prompt(0))
    for _ in range(tokens - 1):
        step.step()
    step.reset(context)
    with clock_file.open("wb", buffering=0) as clock:
        while True:
            for _ in range(tokens - 1):
                int(step.step()[0])
                clock.write(struct.pack("<q", time.time_ns()))
            step.reset(context)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), Path(sys.argv[5]))
