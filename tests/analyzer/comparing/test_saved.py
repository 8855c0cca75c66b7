"""Output of `compare --json` and `diff --json` is read again, or refused with one line."""

from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.diff import diff_reports
from decodescope.analyzer.comparing.saved import may_be_saved, read_saved
from decodescope.analyzer.errors import InputError
from tests.helpers.comparison_reports import runs_of, step_of, window_of

WINDOW = window_of([step_of(0, 1000, {"host_wait": 300})])
COMPARISON = compare_runs(
    runs_of({"eager": [10.0, 11.0, 12.0], "compiled": [20.0, 21.0, 22.0]}), {"eager": WINDOW}
)
DIFF = diff_reports(WINDOW, WINDOW)


@pytest.mark.parametrize("saved", [COMPARISON, DIFF])
def test_what_was_written_is_read(saved: msgspec.Struct, tmp_path: Path) -> None:
    written = msgspec.json.encode(saved)
    for text in (written, msgspec.json.format(written, indent=2)):
        path = tmp_path / "saved.json"
        path.write_bytes(text)
        assert may_be_saved(path)
        assert read_saved(text, str(path)) == saved


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "not the JSON of a comparison"),
        (b"[1]", "not the JSON of a comparison"),
        (b'{"schema_version": 3', "not the JSON of a comparison"),
        (b'{"schema_version": 99, "runs": []}', "schema version 99, this decodescope reads 3"),
        (b'{"schema_version": 3}', "neither a comparison nor a diff"),
        (b'{"schema_version": 3, "runs": []}', "missing required field"),
        (b'{"schema_version": 3, "pair": 3}', "Expected"),
    ],
)
def test_anything_else_is_refused_with_one_line(text: bytes, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        read_saved(text, "old.json")
    assert str(caught.value).startswith("old.json: ")
    assert "\n" not in str(caught.value)


def test_text_that_is_no_utf_8_is_refused() -> None:
    text = msgspec.json.encode(DIFF).replace(b"kineto", b"kinet\xe5")
    with pytest.raises(InputError, match=r"old.json: not the JSON of a comp"):
        read_saved(text.replace(b"trace.json", b"trac\xe5.json"), "old.json")


def test_a_comparison_of_nothing_is_refused() -> None:
    empty = msgspec.structs.replace(
        COMPARISON, runs=(), comparison=msgspec.structs.replace(COMPARISON.comparison, variants=())
    )
    with pytest.raises(InputError, match="fewer than two variants"):
        read_saved(msgspec.json.encode(empty), "old.json")


def test_a_trace_is_not_taken_for_one(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(b'{"traceEvents": [], "schema_version": 3}')
    assert not may_be_saved(path)
