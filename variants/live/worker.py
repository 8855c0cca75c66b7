"""The worker process: `python -m decodescope.variants.live.worker SOCKET_FD CONFIG_FILE`.

It decodes for the app at the other end of a socket pair, and ends with it. Every slow stage is
announced by a `Progress` message first; torch is imported only after the first of them. Asked for
several ranks, it starts them, and rank 0 decodes for the app.
"""

import gc
import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from time import perf_counter_ns
from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.analyzer.protocol.messages import Bye, Progress, WorkerConfig
from decodescope.variants.live.channel import Channel, ChannelClosed
from decodescope.variants.machine.child_process import end_with_parent, exit_now, failure_of
from decodescope.variants.machine.environment import require_run_packages
from decodescope.variants.measuring.request import read_request
from decodescope.variants.parallel.launcher import launch
from decodescope.variants.parallel.place import is_rank, place_of
from decodescope.variants.parallel.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from decodescope.variants.live.lockstep import RankChannel

_FLUSH_S = 1.0
_IMPORTING = "importing torch and transformers"


def main(arguments: list[str]) -> int:
    control, file = int(arguments[0]), Path(arguments[1])
    if not is_rank(os.environ):
        end_with_parent(control)
        channel = Channel(socket.socket(fileno=control))
        return _serve(channel, partial(_work, channel, control, file))
    if place_of(os.environ).ranks.rank:
        _work_as_rank(None, file)
        return 0
    channel = Channel(socket.socket(fileno=control))
    return _serve(channel, partial(_work_as_rank, channel, file))


def _serve(channel: Channel, work: Callable[[], None]) -> int:
    with suppress(ChannelClosed):
        code, reason = 0, "quit"
        try:
            work()
        except ChannelClosed:
            return 0
        except SystemExit:
            reason = "terminated"
        except Exception as error:  # ours, a device's, or a bug
            failure = failure_of(error)
            if not isinstance(error, DecodescopeError):
                failure = replace(failure, message=f"the worker failed: {failure.message}")
            channel.send(failure)
            code, reason = failure.exit_code, "failed"
        channel.send(Bye(reason))
        channel.flush(_FLUSH_S)
        return code
    return 0


def _work(channel: Channel, control: int, file: Path) -> None:
    require_run_packages()
    config = _config_in(file)
    if config.tp > 1:
        channel.send(Progress(f"starting {config.tp} ranks"))
        channel.flush(_FLUSH_S)
        read_request(config)
        # Ranks inherit no socket but standard input.
        os.dup2(control, 0)
        exit_now(launch(config.tp, "decodescope.variants.live.worker", ("0", str(file))))
    channel.send(Progress(_IMPORTING))
    _decode(config, channel, Path(config.trace_dir))


def _config_in(file: Path) -> WorkerConfig:
    return msgspec.json.decode(file.read_bytes(), type=WorkerConfig)


def _work_as_rank(channel: Channel | None, file: Path) -> None:
    """Decode with the other ranks; rank 0 has the channel to the app."""
    if channel is not None:
        channel.send(Progress(_IMPORTING))
    from decodescope.variants.live.lockstep import RankChannel, RankClock
    from decodescope.variants.parallel.group import group_of_this_process

    with WorkFolder() as own, group_of_this_process() as group:
        config = group.shared(lambda: _config_in(file), WorkerConfig)
        folder = own if channel is None else Path(config.trace_dir)
        ranks = group.join(config)
        _decode(config, RankChannel(channel, ranks), folder, RankClock(ranks), ranks)


def _decode(
    config: WorkerConfig,
    channel: "Channel | RankChannel",
    windows: Path,
    clock_ns: Callable[[], int] = perf_counter_ns,
    ranks: Ranks = ALONE,
) -> None:
    # Objects made by imports stay. Visiting them again and again takes a seventh of the start.
    gc.disable()
    from decodescope.variants.live.loop import LiveLoop
    from decodescope.variants.live.session import open_session
    from decodescope.variants.live.windows import WindowFiles

    gc.freeze()
    gc.enable()
    session = open_session(config, lambda stage: channel.send(Progress(stage)), ranks)
    channel.send(session.hello())
    LiveLoop(session, channel, WindowFiles(windows), clock_ns, ranks).run(session.variant)


if __name__ == "__main__":
    exit_now(main(sys.argv[1:]))
