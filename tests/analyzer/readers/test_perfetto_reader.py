"""Perfetto traces of rocprofv3, read through trace_processor: the rows that its own engine gives,
and what is said where it is missing or fails."""

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import analyze, load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.perfetto import perfetto_reader
from decodescope.analyzer.trace import KERNEL, MEMCPY
from tests.analyzer.readers.test_rocprof_reader import names_of

# What every Perfetto trace begins with, for tests that do not read it.
HEAD = b"\n\x0e\x40\xd2\x09\x50\x01\x62\x06\x08\x01\x12\x02ab"
GPU = {"agent": "GPU-0", "agent_type": "GPU", "queue": 2, "tid": 101}
ROWS = [
    ("marker_api", "decode_step", 5, 500, 1, {"tid": 101}),
    ("marker_api", "a mark", 200, 200, 9, {"tid": 101}),
    ("hip_api", "hipLaunchKernel", 10, 20, 2, {"tid": 101, "stream_ID": 5}),
    ("hsa_api", "hsa_signal_store_screlease", 12, 18, 7, {"tid": 101}),
    (
        "kernel_dispatch",
        'void gemm<"é", 1>(float*) [clone .kd]',
        30,
        60,
        7,
        {**GPU, "stream_ID": 5, "LDS_Block_Size": 1024, "VGPR_Count": 32, "Accum_VGPR_Count": 8},
    ),
    ("hip_api", "hipMemcpyAsync", 40, 50, 3, {"tid": 101}),
    (
        "memory_copy",
        "MEMORY_COPY_DEVICE_TO_HOST",
        70,
        75,
        3,
        {"src_agent": "GPU-0", "dst_agent": "CPU-0", "stream_ID": 5, "tid": 101},
    ),
    ("rccl_api", "ncclAllReduce", 80, 90, 4, {"tid": 101}),
]


def program(folder: Path, text: str) -> None:
    path = folder / "trace_processor_shell"
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)


@pytest.fixture
def found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder on the path, and a home without downloads."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("HOME", str(tmp_path))
    return folder


def as_row(domain: str, name: str, start: int, end: int, correlation: int, more: Any) -> str:
    """A row of `QUERY`."""
    given = {"begin_ns": start, "end_ns": end, "corr_id": correlation, **more}
    integers = [str(given.get(name, -1)) for name in perfetto_reader._INTEGERS]
    agents = [str(given.get(name, "")).encode().hex() for name in perfetto_reader._AGENTS]
    return "|".join(["row", domain, name.encode().hex().upper(), *integers, *agents])


def check(path: Path) -> None:
    trace = load(path)
    assert trace.source.format == "perfetto"
    assert trace.ops.kind.tolist() == [KERNEL, MEMCPY]
    assert names_of(trace, trace.ops.name) == ['void gemm<"é", 1>(float*)', "Memcpy DtoH"]
    assert (trace.ops.start_ns.tolist(), trace.ops.end_ns.tolist()) == ([30, 70], [60, 75])
    assert (trace.ops.stream.tolist(), trace.ops.device.tolist()) == ([5, 5], [0, 0])
    assert names_of(trace, trace.calls.name) == ["hipLaunchKernel", "hipMemcpyAsync"]
    assert trace.ops.launch.tolist() == [0, 1]
    assert names_of(trace, trace.ranges.name) == ["decode_step"]
    assert (trace.device_names, trace.calls.tid.tolist()) == ({0: "GPU-0"}, [101, 101])
    shape = trace.shapes[trace.ops.shape[0]]
    assert (shape.registers_per_thread, shape.shared_memory_bytes) == (40, 1024)
    assert [step.gpu_ops for step in analyze(trace).report.steps] == [2]


def test_the_rows_become_a_trace(found: Path, tmp_path: Path) -> None:
    rows = [as_row(*row) for row in ROWS if row[0] in perfetto_reader._DOMAINS]
    printed = ['"row of the query"', *(f'"{row}"' for row in rows), "[1] loaded"]
    path = tmp_path / "results.pftrace"
    path.write_bytes(HEAD)
    text = "import sys, pathlib\n"
    text += f"assert sys.argv[1] == '-q' and sys.argv[3] == {str(path)!r}, sys.argv\n"
    text += "assert pathlib.Path(sys.argv[2]).read_text().startswith('SELECT')\n"
    program(found, f"{text}print({chr(10).join(printed)!r})\n")
    check(path)


def test_perfettos_own_engine_gives_these_rows(found: Path, tmp_path: Path) -> None:
    from tests.helpers.trace_processor import trace_processor

    path = tmp_path / "results.pftrace"
    path.write_bytes(written())
    with trace_processor() as loaded:
        rows = [str(row[0]) for row in loaded(path).query(perfetto_reader.QUERY)]
    expected = [as_row(*row) for row in ROWS if row[0] in perfetto_reader._DOMAINS]
    assert [*map(str.upper, sorted(rows))] == [*map(str.upper, sorted(expected))]
    program(found, f"print({chr(10).join(rows)!r})\n")
    check(path)


def written() -> bytes:
    """A trace of these slices, each on a track of its own, as rocprofv3 writes them."""
    from perfetto.protos.perfetto.trace.perfetto_trace_pb2 import Trace, TrackEvent

    trace = Trace()
    for track, (domain, name, start, end, correlation, more) in enumerate(ROWS, 1):
        packet = trace.packet.add()
        packet.track_descriptor.uuid = track
        packet.track_descriptor.name = f"track {track}"
        packet.trusted_packet_sequence_id = 1
        for kind, at in ((TrackEvent.TYPE_SLICE_BEGIN, start), (TrackEvent.TYPE_SLICE_END, end)):
            packet = trace.packet.add()
            packet.timestamp = at
            packet.trusted_packet_sequence_id = 1
            event = packet.track_event
            event.type, event.track_uuid = kind, track
            if kind == TrackEvent.TYPE_SLICE_BEGIN:
                event.name = name
                event.categories.append(domain)
                given = {"begin_ns": start, "end_ns": end, "corr_id": correlation, **more}
                for key, value in given.items():
                    note = event.debug_annotations.add()
                    note.name = key
                    if isinstance(value, str):
                        note.string_value = value
                    else:
                        note.uint_value = value
    return bytes(trace.SerializeToString())


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import sys; sys.exit('no trace')", "ends with code 1: no trace"),
        ("print('\"row\"')", "without a slice of rocprofv3"),
        ("print('row|hip_api|zz')", "without a slice of rocprofv3"),
    ],
)
def test_what_it_cannot_read_is_one_line(text: str, says: str, found: Path, tmp_path: Path) -> None:
    path = tmp_path / "results.pftrace"
    path.write_bytes(HEAD)
    program(found, text)
    with pytest.raises(TraceError, match=says) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_without_the_program_the_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    path = tmp_path / "results.pftrace"
    path.write_bytes(HEAD)
    with pytest.raises(TraceError, match="trace_processor_shell must be on the path"):
        load(path)


def test_a_program_that_the_package_downloaded_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    kept = tmp_path / ".local" / "share" / "perfetto" / "prebuilts"
    kept.mkdir(parents=True)
    (kept / "trace_processor_shell-aa.tmp").write_text("half")
    assert perfetto_reader.shell() is None
    whole = kept / "trace_processor_shell-aa"
    whole.write_text("")
    whole.chmod(0o755)
    assert perfetto_reader.shell() == str(whole)


_FIELDS = st.sampled_from(
    ["", "-1", "0", "7", "9" * 30, "-", "zz", "6b", "c3", "é", "kernel_dispatch"]
)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(perfetto_reader._DOMAINS), st.lists(_FIELDS, min_size=13, max_size=13)
        ),
        min_size=1,
        max_size=8,
    )
)
def test_hostile_rows_are_no_figures(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, list[str]]]
) -> None:
    path = tmp_path_factory.getbasetemp() / "results.pftrace"
    path.write_bytes(HEAD)
    text = "\n".join("|".join(("row", domain, *fields)) for domain, fields in rows)

    def answered(
        command: object, source: str, folder: Path, within_s: float, output: IO[bytes]
    ) -> None:
        output.write(text.encode())

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(perfetto_reader, "shell", lambda: "trace_processor_shell")
        patch.setattr(perfetto_reader, "converted", answered)
        with suppress(TraceError):
            trace = load(path)
            assert (trace.ops.length_ns >= 0).all()
