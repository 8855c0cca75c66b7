"""The `decodescope` command, also as `python -m decodescope`."""

import signal
from typing import NoReturn


def main() -> NoReturn:
    """Import the commands and run that of this process's arguments."""
    # Imports take longer than a quick Ctrl-C: until `interruptible` handles it, it ends the process
    # as it ends any program, where Python would print a traceback. An ignored one stays ignored.
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from decodescope.cli import main as commands

    commands.main()


if __name__ == "__main__":
    main()
