"""Starts the ranks of a run on this machine with torch.distributed's launcher.

Each rank is `python -m MODULE ARGUMENT...`. Standard input and output are those of rank 0; what the
others write is kept in files, and their last line on stderr is shown if it says why they failed.
"""

import logging
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.analyzer.errors import MissingRequirement, process_end
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.variants.parallel.place import ERROR_PREFIX

if TYPE_CHECKING:
    from torch.distributed.elastic.multiprocessing.errors import ProcessFailure

_LOOK_S = 0.1
# What the other ranks have to end in, once one has failed. A stopped one does not end by itself.
END_S = 3


def launch(size: int, module: str, arguments: Sequence[str]) -> int:
    """Run the ranks to their end; the exit code. If one fails, the others are ended, and stderr has
    one line that names it. It takes this process's signals and logging: do nothing but end after
    it."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, SignalException, Std
    from torch.distributed.elastic.multiprocessing.api import PContext
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    # The launcher tells of each signal and each process in several lines.
    logging.disable(logging.CRITICAL)
    # Its own 30 s have no option.
    PContext.close.__defaults__ = (None, END_S)
    os.environ.setdefault("OMP_NUM_THREADS", str(max(1, (os.cpu_count() or 1) // size)))
    with WorkFolder() as folder:
        logs = DefaultLogsSpecs(str(folder), dict.fromkeys(range(1, size), Std.ALL))
        config = LaunchConfig(
            min_nodes=1,
            max_nodes=1,
            nproc_per_node=size,
            run_id="ranks",
            rdzv_backend="c10d",
            rdzv_endpoint="localhost:0",
            local_addr="localhost",
            max_restarts=0,
            monitor_interval=_LOOK_S,
            logs_specs=logs,
        )
        try:
            elastic_launch(config, sys.executable)("-P", "-m", module, *arguments)
        except ChildFailedError as error:
            return _reported(error.failures, size, folder, "--debug" in arguments)
        except SignalException as error:
            return 128 + int(error.sigval)
    return 0


def _reported(
    failures: "Mapping[int, ProcessFailure]", size: int, folder: Path, debug: bool
) -> int:
    """The exit code of the rank that failed, and its line on stderr unless rank 0 wrote it; to
    `debug`, all that it wrote.

    A rank that failed by itself has an exit code of its own, and said why; without one, a rank was
    killed from outside. The rest were ended by SIGTERM.
    """
    lines = {rank: _lines(folder, rank) for rank in failures}
    told = [line for written in lines.values() for line in written if line.startswith(ERROR_PREFIX)]
    rank = min(failures, key=lambda rank: (_cause(failures[rank].exitcode), rank))
    code = failures[rank].exitcode
    if debug and rank:
        sys.stderr.writelines(f"{line}\n" for line in lines[rank])
    elif told:
        sys.stderr.write(f"{told[0]}\n")
    if told or (code > 0 and not rank):
        return code if code > 0 else MissingRequirement.exit_code
    last = f"; its last output: {lines[rank][-1]}" if lines[rank] else ""
    sys.stderr.write(
        f"{ERROR_PREFIX}rank {rank} of {size} (process {failures[rank].pid}) "
        f"{process_end(code)}{last}\n"
    )
    return code if code > 0 else MissingRequirement.exit_code


def _cause(exit_code: int) -> int:
    """Ranks of which this is least failed first: by themselves, killed, or ended for another."""
    if exit_code in (128 + signal.SIGTERM, -signal.SIGTERM):
        return 2
    return int(exit_code < 0)


def _lines(folder: Path, rank: int) -> list[str]:
    """The lines that a rank wrote to stderr."""
    logs = folder.glob(f"*/attempt_0/{rank}/stderr.log")
    texts = (log.read_text(errors="replace") for log in logs)
    return [line for text in texts for line in text.splitlines() if line.strip()]
