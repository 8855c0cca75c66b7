"""A real vLLM that serves the bundled model on the CPU, and clients that keep it busy.

The server has an environment of its own, which `make test-engines` sets up.
"""

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections import deque
from contextlib import closing
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen
from typing import Self

REPOSITORY = Path(__file__).resolve().parents[3]
PROGRAM = REPOSITORY / ".venv-vllm" / "bin" / "vllm"
TINY = REPOSITORY / "variants" / "tiny"
PROMPTS = (
    "def fib(n):",
    "import os\n",
    "class A:",
    "for i in range(10):",
    "while True:",
    "try:\n",
    "with open(",
    "if __name__",
)
# So many that nearly always all clients are answered at the same time, and none asks.
TOKENS = 256
# Other processes may have the processor for seconds at a time.
_PATIENCE_S, _START_S = 240, 400
_READY = "Application startup complete."


class RealVllm:
    """vLLM on a free port of this machine for the length of a block, with its profiler on."""

    def __init__(self, traces: Path) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.traces, self.url = traces, f"http://127.0.0.1:{self.port}"

    def start(self, name: str) -> None:
        """Serve the model as `name`; returns when the server answers."""
        profiler = {
            "profiler": "torch",
            "torch_profiler_dir": str(self.traces),
            "torch_profiler_with_stack": False,
            "torch_profiler_dump_cuda_time_total": False,
        }
        options = {
            "--served-model-name": name,
            "--host": "127.0.0.1",
            "--port": self.port,
            # In 32 bits the next token does not depend on what else is in the batch.
            "--dtype": "float32",
            "--max-model-len": 512,
            "--profiler-config": json.dumps(profiler),
        }
        variables = {
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        inherited = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        words = [str(word) for pair in options.items() for word in pair]
        self._process = Popen(
            [PROGRAM, "serve", TINY, "--enforce-eager", *words],
            env={**inherited, **variables},
            stdout=PIPE,
            stderr=STDOUT,
            text=True,
            start_new_session=True,
        )
        self._printed, self._is_up = deque[str](maxlen=40), threading.Event()
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        assert self._is_up.wait(_START_S)
        while not self._listens():
            assert self._process.poll() is None, "".join(self._printed)
            time.sleep(0.05)

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._printed.append(line)
                if _READY in line:
                    self._is_up.set()
        self._is_up.set()

    def _listens(self) -> bool:
        """Just after it says that it is up, it may not listen yet."""
        with closing(HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)) as connection:
            try:
                connection.connect()
            except ConnectionRefusedError:
                return False
            return True

    def stop(self) -> None:
        """End the server and its workers."""
        self._process.send_signal(signal.SIGTERM)
        try:
            self._process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._process.poll() is None:
            self.stop()


@dataclass(frozen=True)
class Completion:
    """A greedy answer to one of `PROMPTS`, and when it was asked for and there."""

    prompt: str
    text: str
    prompt_tokens: int
    began_s: float
    ended_s: float


def complete(port: int, prompt: str) -> Completion:
    """`TOKENS` tokens after `prompt`, greedily."""
    began_s = time.monotonic()
    request = {
        "model": "tiny",
        "prompt": prompt,
        "max_tokens": TOKENS,
        "temperature": 0,
        "ignore_eos": True,
    }
    with closing(HTTPConnection("127.0.0.1", port, timeout=_PATIENCE_S)) as connection:
        headers = {"Content-Type": "application/json"}
        connection.request("POST", "/v1/completions", json.dumps(request), headers)
        answer = json.loads(connection.getresponse().read())
    assert answer["usage"]["completion_tokens"] == TOKENS
    text, prompt_tokens = answer["choices"][0]["text"], answer["usage"]["prompt_tokens"]
    return Completion(prompt, text, prompt_tokens, began_s, time.monotonic())


class Clients:
    """A client for each prompt, which asks again and again for the length of a block."""

    def __init__(self, port: int) -> None:
        self.completions: list[Completion] = []
        self._port, self._ending = port, threading.Event()
        self._threads = [threading.Thread(target=self._ask, args=(each,)) for each in PROMPTS]

    def _ask(self, prompt: str) -> None:
        while not self._ending.is_set():
            self.completions.append(complete(self._port, prompt))

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join()
