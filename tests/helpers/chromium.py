"""A headless Chromium for tests, spoken to over a pipe in the DevTools protocol.

Source of the protocol: https://chromedevtools.github.io/devtools-protocol/. With
--remote-debugging-pipe the browser reads commands from file descriptor 3 and answers on 4, each
message JSON that ends with a zero byte.
"""

import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
FLAGS = (
    "--headless",
    "--remote-debugging-pipe",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--disable-extensions",
    "--mute-audio",
)
ANSWER_WITHIN_S = 60.0
# The browser wants exactly descriptors 3 and 4; they are moved there in a process of its own.
_MOVE_PIPES = (
    "import fcntl, os, sys;"
    "ends = [fcntl.fcntl(int(fd), fcntl.F_DUPFD, 10) for fd in sys.argv[1:3]];"
    "os.dup2(ends[0], 3); os.dup2(ends[1], 4); os.execvp(sys.argv[3], sys.argv[3:])"
)

Message = dict[str, Any]


def installed_program() -> str | None:
    """The path of a Chromium, or None."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
    """The running browser: sends commands, and hands out what comes back."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._buffer = b""
        self._last_id = 0
        self.events: list[Message] = []

    def call(self, method: str, session: str = "", **params: Any) -> Message:
        self._last_id += 1
        message = {"id": self._last_id, "method": method, "params": params}
        if session:
            message["sessionId"] = session
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while (answer := self.receive()).get("id") != self._last_id:
            pass
        assert "error" not in answer, answer
        result: Message = answer["result"]
        return result

    def receive(self) -> Message:
        """The next message, whatever it is about."""
        until = time.monotonic() + ANSWER_WITHIN_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._answers], [], [], until - time.monotonic())
            chunk = os.read(self._answers, 1 << 16) if ready else b""
            assert chunk, "the browser does not answer"
            self._buffer += chunk
        text, _, self._buffer = self._buffer.partition(b"\0")
        message: Message = json.loads(text)
        if "method" in message:
            self.events.append(message)
        return message


class Tab:
    """One page of the browser; `events` are those that concern it."""

    def __init__(self, browser: Browser) -> None:
        self._browser = browser
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        attached = browser.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    @property
    def events(self) -> list[Message]:
        return [event for event in self._browser.events if event.get("sessionId") == self._session]

    def call(self, method: str, **params: Any) -> Message:
        return self._browser.call(method, self._session, **params)

    def open(self, page: Path | str, width: int = 1280, height: int = 900) -> None:
        """Show a file or an address, and wait until it is loaded."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )
        self.call("Page.navigate", url=page if isinstance(page, str) else page.as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._browser.receive()

    def evaluate(self, expression: str) -> Any:
        result = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    def press(self, key: str) -> None:
        """A key that writes a character, pressed and released."""
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, text=key * (kind == "keyDown"))

    def until(self, expression: str) -> None:
        """Wait until an expression is true."""
        end = time.monotonic() + ANSWER_WITHIN_S
        while not self.evaluate(expression):
            assert time.monotonic() < end, expression
            time.sleep(0.05)

    def requested(self) -> list[str]:
        """The addresses of all requests so far."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event["method"] == "Network.requestWillBeSent"
        ]

    def complaints(self) -> list[Message]:
        """Whatever reached the console: errors, warnings, violations of the policy."""
        kinds = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")
        return [event for event in self.events if event["method"] in kinds]


@contextmanager
def running_browser(program: str, profile: Path) -> Iterator[Browser]:
    """A browser with an empty profile, ended with the block."""
    command_end, commands = os.pipe()
    answers, answer_end = os.pipe()
    arguments = [program, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = subprocess.Popen(
        [sys.executable, "-c", _MOVE_PIPES, str(command_end), str(answer_end), *arguments],
        pass_fds=(command_end, answer_end),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_end)
    os.close(answer_end)
    try:
        yield Browser(commands, answers)
    finally:
        with suppress(OSError):
            os.write(commands, b'{"id": 0, "method": "Browser.close"}\0')
        os.close(commands)
        os.close(answers)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
