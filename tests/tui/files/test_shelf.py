"""What a folder lists, and how a path is completed."""

import gzip
import json
import os
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from decodescope.analyzer.readers.reading import format_of
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.tui.model.shelf import FOLDER, FileEntry, Shelf, folder_of, listing, look
from tests.helpers.foreign import rocprof_files
from tests.helpers.foreign.proton_files import tree

DATA = Path(__file__).resolve().parents[2] / "data"


def test_every_format_is_recognised_by_its_first_bytes(tmp_path: Path) -> None:
    process = rocprof_files.Process()
    process.kernel(30, 230, 1)
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "toml").write_text("[tool]\nx = 1")
    (tmp_path / "db").write_bytes(b"SQLite format 3\x00" + bytes(100))
    (tmp_path / "a.nsys-rep").write_bytes(b"report")
    (tmp_path / "tree").write_text(json.dumps(tree()))
    (tmp_path / "pftrace").write_bytes(b"\n\x0e\x40\xd2\x09\x50\x01\x62\x06\x08\x01\x12\x02ab")
    (tmp_path / "zip").write_bytes(b"PK\x03\x04" + bytes(100))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b'{"traceEvents": []}')[:-3])
    found = {
        "rocprof": rocprof_files.write(tmp_path / "7_results.json", process),
        "recording": bundled_recordings()[0],
        "kineto": DATA / "cpu_two_blocks.json.gz",
        "sqlite": tmp_path / "db",
        "nsys": tmp_path / "a.nsys-rep",
        "proton": tmp_path / "tree",
        "perfetto": tmp_path / "pftrace",
    }
    assert {name: format_of(Path(path)) for name, path in found.items()} == {n: n for n in found}
    assert [format_of(tmp_path / one) for one in ("toml", "zip")] == ["", ""]
    assert format_of(tmp_path / "cut.gz") == "kineto"


def test_a_folder_with_what_cannot_be_read_is_listed(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    (tmp_path / "broken.gz").write_bytes(b"\x1f\x8b broken")
    kinds = {entry.name: entry.kind for entry in listing(tmp_path)}
    assert kinds == {
        "fifo": "not a trace",
        "gone": "No such file or directory",
        "broken.gz": "not a trace",
    }
    assert look(tmp_path / "none", "recent").kind == "No such file or directory"
    with pytest.raises(OSError, match="none"):
        listing(tmp_path / "none")


@given(
    typed_=st.text(alphabet="aA./~ _-é\n", max_size=12),
    found=st.lists(st.text(alphabet="aAb._é", min_size=1, max_size=6), unique=True, max_size=6),
)
@example(typed_="A//", found=["A", "_"])
def test_completing_only_adds_and_keeps_every_match(typed_: str, found: list[str]) -> None:
    entries = tuple(FileEntry(Path("/x") / name, "folder", FOLDER) for name in found)
    shelf = Shelf(typed_, listed=entries)
    done = shelf.completed()
    before = set(shelf.visible())
    after = set(Shelf(done.removesuffix("/") if done != typed_ else done, listed=entries).visible())
    assert len(done) >= len(typed_)
    assert after == before
    assert folder_of(typed_, Path("/y")).is_absolute()
