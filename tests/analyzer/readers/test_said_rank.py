"""Which files are the ranks of one run, by their beginnings."""

import gzip
from pathlib import Path

import pytest

from decodescope.analyzer.readers.reading import are_ranks
from tests.helpers.kineto_events import document, op
from tests.helpers.ranks.runs import a_run, rank_files


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    return rank_files(tmp_path, a_run(3, 4))


def test_different_ranks_are_of_one_run(files: list[Path]) -> None:
    assert are_ranks(files)
    assert are_ranks(files[1:])
    packed = files[0].with_suffix(".json.gz")
    packed.write_bytes(gzip.compress(files[0].read_bytes()))
    assert are_ranks([packed, files[1]])


def test_one_file_and_one_rank_twice_are_not(files: list[Path]) -> None:
    assert not are_ranks(files[:1])
    assert not are_ranks([])
    copy = files[0].with_name("copy.json")
    copy.write_bytes(files[0].read_bytes())
    assert not are_ranks([files[0], copy])


@pytest.mark.parametrize(
    "data",
    [
        document([op(0, 5)]),
        document([op(0, 5)], distributedInfo={"backend": "nccl"}),
        document([op(0, 5)], distributedInfo={"rank": "0"}),
        b'{"padding": "' + b" " * (256 << 10) + b'", "distributedInfo": {"rank": 7}}',
        b"",
        b"\x1f\x8b",
        b"\x1f\x8b\x08\x00broken",
        b"\xff" * 100,
    ],
)
def test_a_file_that_names_none_is_no_rank(files: list[Path], data: bytes) -> None:
    other = files[0].with_name("other")
    other.write_bytes(data)
    assert not are_ranks([*files, other])


def test_what_cannot_be_read_is_no_rank(files: list[Path], tmp_path: Path) -> None:
    assert not are_ranks([*files, tmp_path])
    assert not are_ranks([*files, tmp_path / "missing.json"])
    assert not are_ranks([*files, Path("-")])
