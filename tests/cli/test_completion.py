"""`completion`: what it prints completes commands, options and their values in a shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from decodescope.cli.main import cli
from tests.helpers.command import Command

COMPLETE = """
eval "$(decodescope completion bash)"
for line in "$@"; do
  COMPREPLY=() COMP_WORDS=($line) COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  _decodescope_completion decodescope
  echo "${COMPREPLY[@]}"
done
"""


def completed(*words: str) -> list[str]:
    *before, start = words
    complete = ShellComplete(cli, {}, "decodescope", "_DECODESCOPE_COMPLETE")
    return [item.value for item in complete.get_completions(before, start)]


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_completes_a_command_and_an_option(tmp_path: Path) -> None:
    program = tmp_path / "decodescope"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m decodescope "$@"\n')
    program.chmod(0o755)
    done = subprocess.run(
        ["bash", "--norc", "-c", COMPLETE, "bash", "decodescope anal", "decodescope run --tok"],
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["analyze", "--tokens"]
    assert done.stderr == ""


@pytest.mark.parametrize(("shell", "line"), [("zsh", "#compdef decodescope"), ("fish", "function")])
def test_other_shells_have_theirs(decodescope: Command, shell: str, line: str) -> None:
    done = decodescope("completion", shell)
    assert done.code == 0
    assert done.out.startswith(line)
    assert "_DECODESCOPE_COMPLETE" in done.out


def test_words_are_completed_wherever_they_stand() -> None:
    assert {"analyze", "baseline", "completion"} <= set(completed(""))
    assert completed("--deb") == ["--debug"]
    # Options without a command are those of `live`.
    assert completed("--model", "tiny", "--record") == ["--record"]
    assert completed("baseline", "") == ["list", "remove", "save", "show"]
    assert completed("completion", "z") == ["zsh"]
    assert completed("analyze", "t.json", "--format", "h") == ["html"]
    assert completed("diff", "a", "--against", "") == [""]  # the shell completes a file
    # After a word that is no command, and without the name that a group needs.
    assert completed("nonsense", "--deb") == ["--debug"]
