"""A prompt from a file, for `live` as for `run`."""

from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.cli.options import worker_config
from tests.cli.conftest import Command

OPTIONS = {
    "model": "tiny",
    "batch": 1,
    "context": None,
    "device": "cpu",
    "trust_remote_code": False,
    "temperature": None,
    "top_k": None,
    "top_p": None,
    "seed": None,
}


@pytest.mark.parametrize(
    ("data", "prompt"),
    [
        (b"def f():\n", "def f():"),
        (b"def f():\r\n", "def f():"),
        (b"a\r\nb\n\n", "a\r\nb\n"),
        ("gr\u00fc\u00dfe".encode(), "gr\u00fc\u00dfe"),
        (b"", ""),
    ],
)
def test_the_text_is_kept_but_for_the_last_newline(
    tmp_path: Path, data: bytes, prompt: str
) -> None:
    path = tmp_path / "prompt.txt"
    path.write_bytes(data)
    assert worker_config({**OPTIONS, "prompt_file": path}).prompt == prompt


def test_bytes_that_are_no_text_are_refused_with_their_place(tmp_path: Path) -> None:
    path = tmp_path / "prompt.bin"
    path.write_bytes(b"abc\xff")
    with pytest.raises(InputError, match="byte 4 is no UTF-8 text"):
        worker_config({**OPTIONS, "prompt_file": path})
    with pytest.raises(InputError, match="cannot be read"):
        worker_config({**OPTIONS, "prompt_file": tmp_path})


def test_live_takes_a_prompt_too(decodescope: Command, tmp_path: Path) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("def read(path):\n")
    asked = ("live", "--model", "tiny", "--device", "cpu")
    lengths = set()
    for prompt in (("--prompt", "def read(path):"), ("--prompt-file", str(path))):
        done = decodescope(*asked, *prompt)
        assert done.code == 0, done.err
        (line,) = [line for line in done.out.splitlines() if "context" in line][:1]
        lengths.add(line)
    assert len(lengths) == 1
    assert "context 128" not in lengths.pop()
