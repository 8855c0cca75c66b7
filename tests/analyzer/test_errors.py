"""How a process ended, in words."""

import signal

import pytest

from decodescope.analyzer.errors import process_end


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-1000, "was killed by signal 1000"),
    ],
)
def test_a_process_end_names_its_exit_code_or_signal(exit_code: int, text: str) -> None:
    assert process_end(exit_code) == text
