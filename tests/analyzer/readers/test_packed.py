"""gzip and zstd: any number of members in every format, what follows them, and bombs."""

import gzip
import sqlite3
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import open_source
from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.analyzer.readers.test_rocprof_reader import one_step
from tests.analyzer.readers.test_sources import nsys_export, same
from tests.helpers.foreign import rocpd_files, rocprof_files
from tests.helpers.kineto_events import RECORDED, codes, document, op

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

PACKINGS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": lambda data: gzip.compress(data, 1, mtime=0),
    "zstd": lambda data: zstd.compress(data, 1),
}
# A frame that decoders pass over: magic number, length, and so many bytes.
SKIPPED = b"\x53\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"about"


@pytest.fixture(params=["kineto", "nsys", "rocprof", "rocpd", "recording"])
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> bytes:
    if request.param == "kineto":
        return RECORDED
    if request.param == "recording":
        return bundled_recordings()[0].read_bytes()
    if request.param == "rocprof":
        return rocprof_files.document(one_step())
    if request.param == "rocpd":
        return rocpd_files.write(tmp_path / "made.db", one_step()).read_bytes()
    return nsys_export(tmp_path / "made.sqlite")


@pytest.mark.parametrize("packing", PACKINGS)
def test_several_members_are_one_trace(whole: bytes, packing: str, tmp_path: Path) -> None:
    plain, packed = tmp_path / "plain", tmp_path / "packed"
    plain.write_bytes(whole)
    third = len(whole) // 3
    parts = (whole[:third], b"", whole[third : third + 1], whole[third + 1 :])
    packed.write_bytes(b"".join(map(PACKINGS[packing], parts)))
    assert same(load(plain), load(packed))


@given(st.binary(min_size=1, max_size=3000).filter(lambda rest: rest[:1] != b"\x1f" and any(rest)))
def test_what_follows_gzip_data_is_said_and_how_much(
    tmp_path_factory: pytest.TempPathFactory, rest: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "packed"
    path.write_bytes(gzip.compress(document([op(10, 20, 1)]), 1) + rest)
    (finding,) = load(path).findings
    assert finding.code == "trailing_data"
    assert finding.message.startswith(f"{len(rest):,} bytes follow the compressed data")


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_follows_the_last_member_is_said(whole: bytes, packing: str, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    for rest, expected in ((b"\x1f", 1), (b"more than that", 14), (b"\0" * 700, 0)):
        path.write_bytes(PACKINGS[packing](whole) + rest)
        trace = load(path)
        said = [one.message for one in trace.findings if one.code == "trailing_data"]
        assert said == [f"{expected} bytes follow the compressed data, and are not read"] * bool(
            expected
        )
        assert len(trace.ops) > 0


def test_frames_of_zstd_that_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "packed"
    path.write_bytes(SKIPPED + zstd.compress(RECORDED) + SKIPPED)
    trace = load(path)
    assert (len(trace.ops) > 0, codes(trace)) == (True, codes(load(_plain(tmp_path))))


def _plain(folder: Path) -> Path:
    (folder / "plain").write_bytes(RECORDED)
    return folder / "plain"


@given(
    text=st.binary(max_size=3_000),
    cut=st.floats(0, 1),
    packing=st.sampled_from([*PACKINGS]),
    tail=st.binary(max_size=9),
)
def test_every_byte_is_given_once(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, cut: float, packing: str, tail: bytes
) -> None:
    path = tmp_path_factory.getbasetemp() / "packed"
    data, pack = b"x" + text, PACKINGS[packing]
    at = int(cut * len(data))
    # A "t" begins no member; a "T" can begin a frame of zstd that is to be skipped.
    path.write_bytes(pack(data[:at]) + pack(data[at:]) + b"t" + tail)
    with open_source(str(path)) as source:
        assert bytes(source.read_all("")) == data
        assert (source.trailing_bytes, source.truncated) == (1 + len(tail), False)


@pytest.mark.parametrize("packing", PACKINGS)
def test_what_is_cut_or_broken_is_said(packing: str, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    packed = PACKINGS[packing](document([op(10 * k, 10 * k + 5, k) for k in range(1, 4_000)]))
    for damaged in (packed[: len(packed) * 2 // 3], packed[:-60] + b"\xff" * 60):
        path.write_bytes(damaged)
        try:
            assert "truncated" in codes(load(path))
        except TraceError as error:
            assert "broken" in str(error) or "ends before" in str(error)  # noqa: PT017
    path.write_bytes(packed[:9])
    with pytest.raises(TraceError, match="a broken compressed file"):
        load(path)


def test_zstd_that_unpacks_to_more_than_a_trace_does_is_refused(tmp_path: Path) -> None:
    member = zstd.ZstdCompressor(level=3)
    events = document([op(10 * i, 10 * i + 5, i + 1) for i in range(40)])[:-2]
    packed = member.compress(events + b",")
    packed += b"".join(member.compress(b" " * (1 << 20)) for _ in range(100)) + member.flush()
    assert len(packed) < 1 << 20
    path = tmp_path / "bomb"
    path.write_bytes(packed)
    tracemalloc.start()
    try:
        with pytest.raises(TraceError, match="unpacks to over 200 times its size"):
            load(path)
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()


def test_a_damaged_database_inside_zstd_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "made.db.zst"
    data = b"SQLite format 3\x00" + b"\xff" * 5_000
    path.write_bytes(zstd.compress(data))
    with pytest.raises(TraceError, match=r"cut short|damaged") as raised:
        load(path)
    assert not isinstance(raised.value.__cause__, sqlite3.Error)
