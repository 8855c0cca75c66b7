"""What people take for a trace is named at once, and what to do instead."""

import gzip
import io
import json
import lzma
import pickle
import tarfile
import zipfile
from bz2 import compress as bzip2
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer import analyze, load
from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from tests.helpers.kineto_events import DATA, RECORDED

NODE = {"name": "aten::mm", "id": 5, "rf_id": 3, "inputs": [[256, 256]], "outputs": [[6]]}


def execution_trace(schema: str, nodes: int) -> bytes:
    head = {"schema": schema, "pid": 5, "time": "2023-07-14 11:53:07", "start_ts": 62789}
    return json.dumps({**head, "nodes": [NODE] * nodes}, indent=1).encode()


def archive(kind: str) -> bytes:
    stream = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(stream, "w") as packed:
            packed.writestr("trace.json", RECORDED)
    else:
        with tarfile.open(fileobj=stream, mode="w") as tar:
            tar.add(DATA / "cpu_two_blocks.json.gz", "trace.json.gz")
    return stream.getvalue()


KNOWN = [
    (execution_trace("1.0.1", 1), "execution trace .*torch.profiler.profile"),
    (execution_trace("1.1.1-chakra.0.0.4", 500), "execution trace .*no times and no GPU ops"),
    (gzip.compress(execution_trace("1.0.1", 1), mtime=0), "execution trace"),
    (b'{"schema_version": 1, "runs": []}', "a result of decodescope, not a trace"),
    (lzma.compress(RECORDED), "xz -dc FILE"),
    (bzip2(RECORDED), "bzip2 -dc FILE"),
    (archive("zip"), "a zip archive"),
    (archive("tar"), "a tar archive"),
    (gzip.compress(archive("tar"), mtime=0), "a tar archive"),
    (RECORDED.decode().encode("utf-16"), "UTF-16"),
    (pickle.dumps({"segments": []}), "a pickle"),
]


@pytest.mark.parametrize(("data", "says"), KNOWN, ids=[says[:20] for _, says in KNOWN])
def test_it_is_named(data: bytes, says: str, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(data)
    with pytest.raises(TraceError, match=says) as raised:
        load(path)
    assert str(raised.value).startswith(f"{path}: ")
    assert "\n" not in str(raised.value)


def test_it_is_named_before_the_rest_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.json"
    path.write_bytes(execution_trace("1.1.1-chakra.0.0.4", 50_000))
    monkeypatch.delattr(ByteSource, "read")
    with pytest.raises(TraceError, match="execution trace"):
        load(path)


def test_our_own_report_is_named(tmp_path: Path) -> None:
    path = tmp_path / "report.json"
    report = analyze(load(DATA / "cpu_two_blocks.json.gz")).report
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report)))
    with pytest.raises(TraceError, match="a result of decodescope"):
        load(path)


def test_other_json_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "package.json"
    for before in ("", "\n", "\n\t"):
        path.write_text(before + json.dumps({"name": "app", "dependencies": {}}))
        with pytest.raises(TraceError, match="JSON without a traceEvents list"):
            load(path)


def test_a_chrome_trace_with_a_schema_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    event = {"ph": "X", "cat": "kernel", "name": "k", "ts": 1, "dur": 2, "pid": 0, "tid": 7}
    for head in ({"schema_version": 1}, {"schema": "x"}):
        path.write_text(json.dumps({**head, "traceEvents": [event]}))
        assert len(load(path).ops) == 1
