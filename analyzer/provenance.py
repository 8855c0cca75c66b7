"""Which source a figure was made with."""

import subprocess
from pathlib import Path


def source_commit() -> str | None:
    """The commit of the checkout that this package is run from; None for an installed one."""
    room = Path(__file__).resolve().parent
    if not (room.parent / ".git").exists():
        return None
    try:
        done = subprocess.run(
            ["git", "-C", str(room), "rev-parse", "HEAD"],
            capture_output=True,
            text=True,
            check=True,
            timeout=10,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None
