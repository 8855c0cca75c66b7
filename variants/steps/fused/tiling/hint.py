"""Tells on stderr which tiles of a step are only defaults here, and what measures them."""

import shlex
import sys
from functools import cache

from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.fused.tiling.choice import ChosenTiles
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu


def tell_unmeasured(
    chosen: ChosenTiles, gpu: TargetGpu, model: str, workload: DecodeWorkload
) -> None:
    """One line, once in a process; nothing where all tiles were measured."""
    if chosen.unmeasured:
        _tell_once(
            f"tiles not measured on {gpu.name} for {', '.join(chosen.unmeasured)}: "
            f"{tuning_command(model, workload)}"
        )


def tuning_command(model: str, workload: DecodeWorkload) -> str:
    """The command that measures the tiles for such a workload."""
    words = ["decodescope", "bench", "kernels", "--tune", "--model", model]
    words += ["--batch", str(workload.batch), "--context", str(workload.context)]
    words += ["--tokens", str(workload.new_tokens), "--dtype", workload.dtype]
    return shlex.join(words)


@cache
def _tell_once(line: str) -> None:
    sys.stderr.write(f"{line}\n")
