"""The worker process: `python -m decodescope.variants.live.worker SOCKET_FD CONFIG_FILE`.

It decodes for the app at the other end of a socket pair, and ends with it. Every slow stage is
announced by a `Progress` message first; torch is imported only after the first of them.
"""

import gc
import socket
import sys
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec.structs import replace

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol.messages import Bye, Progress, WorkerConfig
from decodescope.variants.live.channel import Channel, ChannelClosed
from decodescope.variants.machine.child_process import end_with_parent, exit_now, failure_of
from decodescope.variants.machine.environment import require_run_packages

_FLUSH_S = 1.0


def main(arguments: list[str]) -> int:
    control, config = arguments
    end_with_parent()
    channel = Channel(socket.socket(fileno=int(control)))
    code = _serve(channel, msgspec.json.decode(Path(config).read_bytes(), type=WorkerConfig))
    channel.flush(_FLUSH_S)
    return code


def _serve(channel: Channel, config: WorkerConfig) -> int:
    with suppress(ChannelClosed):
        code, reason = 0, "quit"
        try:
            _work(channel, config)
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
        return code
    return 0


def _work(channel: Channel, config: WorkerConfig) -> None:
    require_run_packages()
    channel.send(Progress("importing torch and transformers"))
    # Objects made by imports stay. Visiting them again and again takes a seventh of the start.
    gc.disable()
    from decodescope.variants.live.loop import LiveLoop
    from decodescope.variants.live.session import open_session
    from decodescope.variants.live.windows import WindowFiles

    gc.freeze()
    gc.enable()
    session = open_session(config, lambda stage: channel.send(Progress(stage)))
    channel.send(session.hello())
    windows = WindowFiles(Path(config.trace_dir))
    LiveLoop(session, channel, windows).run(session.variant)


if __name__ == "__main__":
    exit_now(main(sys.argv[1:]))
