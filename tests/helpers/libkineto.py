"""A process that speaks to a daemon as libkineto does, without PyTorch, in a tenth of the time.

`python libkineto.py SOCKET BEHAVIOUR`: SOCKET is a folder with the daemon's socket file, or the
name of an abstract one. Each configuration is printed as one line of JSON. A file named
`libtorch_cpu.so` is mapped, so that the process looks like one of PyTorch.

The messages are written here anew, from the layout of libkineto's structures.
"""

import contextlib
import json
import mmap
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from subprocess import PIPE, Popen
from typing import Any

POLL_S, OFTEN_S = 0.1, 0.002


def header(kind: bytes, size: int) -> bytes:
    return size.to_bytes(8, "little") + kind.ljust(32, b"\0")


def request(pids: list[int], kind: int = 3, job: int = 0) -> bytes:
    body = struct.pack(f"=iiq{len(pids)}i", kind, len(pids), job, *pids)
    return header(b"req", len(body)) + body


def registration(pid: int, gpu: int = 0, job: int = 0) -> bytes:
    return header(b"ctxt", 16) + struct.pack("=iiq", gpu, pid, job)


def trace(pid: int, start_ms: int, duration_ms: int, has_kernels: bool = True) -> bytes:
    """Steps of 1 ms with a kernel each, on the clock of the window; no two processes have the same
    events. Without kernels it has their launches."""
    events: list[dict[str, Any]] = []
    for number in range(duration_ms):
        own = {"ph": "X", "pid": pid, "tid": pid}
        link = {"correlation": pid * 100_000 + number}
        name = f"decode_step_{number}"
        step = {**own, "cat": "user_annotation", "name": name, "dur": 900}
        launch = {**own, "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": 5, "args": link}
        kernel = {
            "ph": "X",
            "cat": "kernel",
            "name": "gemm_kernel",
            "pid": 0,
            "tid": 7,
            "dur": 700,
            "args": {**link, "device": 0, "stream": 7},
        }
        for event, after_us in ((step, 0), (launch, 10), (kernel, 20))[: 2 + has_kernels]:
            events.append({**event, "ts": 1000.0 * number + after_us})
    return json.dumps(
        {"schemaVersion": 1, "baseTimeNanoseconds": start_ms * 1_000_000, "traceEvents": events}
    ).encode()


def written(config: Mapping[str, str], behaviour: str) -> None:
    """Write a trace as libkineto does: in one go at the end, and renamed into place."""
    if behaviour == "dies":
        sys.exit(1)
    start_ms = int(config["PROFILE_START_TIME"])
    if time.time() * 1000 > start_ms:
        return
    duration_ms = int(config["ACTIVITIES_DURATION_MSECS"])
    time.sleep(max(start_ms / 1000 + duration_ms / 1000 - time.time(), 0))
    path = config["ACTIVITIES_LOG_FILE"].replace(".json", f"_{os.getpid()}.json", 1)
    if not os.path.isdir(os.path.dirname(path)):
        return
    data = trace(os.getpid(), start_ms, duration_ms)
    written_bytes = {
        "writes nothing": 0,
        "is late once": 0,
        "cuts off": 1000,
        "stops writing": 1000,
    }
    Path(f"{path}.tmp").write_bytes(data[: written_bytes.get(behaviour)])
    if behaviour in ("traces", "asks often", "cuts off", "is an answer behind"):
        os.rename(f"{path}.tmp", path)


def answered(answer: bytes) -> str:
    assert answer[:40] == header(b"req", len(answer) - 40)
    return answer[40:].decode()


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(socket_name: str, behaviour: str) -> None:
    in_folder = socket_name.startswith("/")
    at = f"{socket_name}/" if in_folder else "\0"
    end = "" if in_folder else "\0"
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, "libtorch_cpu.so")
        library.write_bytes(bytes(mmap.PAGESIZE))
        with library.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    endpoint = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    own = f"{at}client{os.getpid()}{end}"
    endpoint.bind(own)
    poll_s = OFTEN_S if behaviour == "asks often" else POLL_S
    endpoint.settimeout(10 * poll_s if behaviour == "asks often" else poll_s)
    say("ready")
    is_behind = behaviour == "is an answer behind"
    while behaviour != "silent" and mapped:
        kind = 1 if behaviour == "busy" else 3
        with contextlib.suppress(OSError):
            endpoint.sendto(request([os.getpid(), os.getppid()], kind), f"{at}dynolog{end}")
            if is_behind:
                is_behind = False
            elif text := answered(endpoint.recv(1 << 16)):
                lines = filter(None, map(str.strip, text.splitlines()))
                config = dict(line.split("=") for line in lines)
                say(json.dumps(config))
                written(config, behaviour)
                if behaviour == "is late once":
                    behaviour = "traces"
        time.sleep(4 * poll_s if behaviour == "is an answer behind" else poll_s)
    time.sleep(600)


@contextlib.contextmanager
def fake_process(
    socket_name: str, behaviour: str = "traces", **environment: str
) -> Iterator["Popen[str]"]:
    """A running process that asks the daemon at `socket_name`."""
    variables = {"KINETO_USE_DAEMON": "1", "KINETO_IPC_SOCKET_DIR": socket_name, **environment}
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("KINETO")}
    with Popen(
        [sys.executable, "-S", "-E", __file__, socket_name, behaviour],
        env={**inherited, **{name: value for name, value in variables.items() if value}},
        stdout=PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
