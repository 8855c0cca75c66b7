"""The A/B page on a real pseudo-terminal: what changes is repainted there too."""

from contextlib import closing
from pathlib import Path

import pytest

from tests.helpers.app.terminal import Terminal

pytest.importorskip("pexpect")


def test_each_state_of_a_comparison_reaches_the_terminal(tmp_path: Path) -> None:
    program = ["-m", "tests.tui.comparing.pty_comparison", str(tmp_path)]
    terminal = Terminal(program, 120, 60)
    with closing(terminal.child):
        terminal.until(lambda: terminal.shows("[x]    compiled"))
        terminal.child.send("c")
        terminal.until(lambda: terminal.shows("of the complete rounds so far"))
        terminal.until(lambda: terminal.shows("top-1 %"))
        terminal.until(lambda: terminal.shows("x4.515"))
        passing = ("so far", "paused meanwhile")
        terminal.until(
            lambda: terminal.shows("(was ") and not any(terminal.shows(text) for text in passing)
        )
        terminal.child.send("q")
        terminal.until(terminal.gone)
