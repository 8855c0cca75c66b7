"""A worker process whose parent has died, and the error that ends one."""

import os
import socket
import subprocess
import sys

import pytest

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.variants.machine.child_process import failure_of


@pytest.mark.parametrize(
    ("error", "code", "text", "traced"),
    [
        (InputError("bad"), 2, "bad", False),
        (MissingRequirement("no GPU"), 3, "no GPU", False),
        (MemoryError(), 3, "out of memory", True),
        (OSError(28, "", "/t/window.json"), 3, "/t/window.json: No space left", True),
        (KeyError("unforeseen"), 70, "KeyError: 'unforeseen'", True),
    ],
)
def test_its_exit_code_is_that_of_the_command(
    error: Exception, code: int, text: str, traced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = failure_of(error)
    assert (failure.exit_code, failure.fatal) == (code, True)
    assert failure.message.startswith(text)
    assert bool(capsys.readouterr().err) == traced


_WORKER = """import os, sys
from decodescope.variants.machine.child_process import end_with_parent
end_with_parent(int(sys.argv[1]))
os.write(2, b"works")"""


@pytest.mark.parametrize("kind", ["pipe", "socket"])
@pytest.mark.parametrize("lives", [True, False])
def test_a_worker_ends_at_once_if_its_parent_died_while_it_started(kind: str, lives: bool) -> None:
    if kind == "pipe":
        parent_end, worker_end = os.pipe()
    else:
        parent_end, worker_end = (end.detach() for end in socket.socketpair())
    if not lives:
        os.close(parent_end)
    command = [sys.executable, "-c", _WORKER, str(worker_end)]
    done = subprocess.run(command, pass_fds=[worker_end], stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == ((0, b"works") if lives else (1, b""))
    os.close(worker_end)
    if lives:
        os.close(parent_end)
