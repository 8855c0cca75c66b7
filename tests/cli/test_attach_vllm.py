"""`attach URL` on a real vLLM, as a command and as the app on a pseudo-terminal."""

import gzip
import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from subprocess import PIPE, Popen

import msgspec
import pytest

from decodescope.analyzer.schema.report import Report
from decodescope.attach.door import WindowPlan
from decodescope.attach.servers.metrics import ServerMetrics
from tests.helpers.app.terminal import Terminal
from tests.helpers.servers.answer_time import AnswerTime
from tests.helpers.servers.doors import open_server
from tests.helpers.servers.vllm import PROGRAM, PROMPTS, TINY, TOKENS, Clients, RealVllm, complete

pytestmark = [
    pytest.mark.engines,
    pytest.mark.skipif(
        not PROGRAM.exists(), reason=f"{PROGRAM}: not there; make test-engines installs it"
    ),
    # The server needs a minute or two to start, and starts twice.
    pytest.mark.timeout(900),
    pytest.mark.xdist_group("busy"),
]
_STEP = re.compile(r"execute_context_(\d+)\(\d+\)_generation_(\d+)\(\d+\)")
_STAGE = re.compile(
    r"measures tokens/s (before|after) the window|records \d+ steps|waits for the files in|reading"
)
STEPS = 10
_ANSWER_S = 10.0
_PATIENCE_S = 240.0


@pytest.fixture(scope="module")
def vllm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVllm]:
    with RealVllm(tmp_path_factory.mktemp("traces")) as server:
        server.start("tiny")
        yield server


def until(condition: Callable[[], bool]) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.05)


def attached(url: str, folder: Path) -> tuple[Report, AnswerTime]:
    """The report of a window by the command, in a process of its own, and where its time went."""
    arguments = ["attach", url, "--json", "--progress", "text", "--iterations", str(STEPS)]
    out = folder / "report.json"
    with (
        out.open("wb") as printed,
        Popen(
            [sys.executable, "-m", "decodescope", *arguments],
            stdout=printed,
            stderr=PIPE,
            text=True,
            cwd=folder,
        ) as process,
    ):
        answer, said = AnswerTime(process.pid), list[str]()
        assert process.stderr is not None
        for line in process.stderr:
            said.append(line)
            answer.says(line.strip())
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        answer.answered()
    assert process.returncode == 0, "".join(said)
    return msgspec.json.decode(out.read_bytes(), type=Report), answer


def observations(metrics: ServerMetrics) -> float:
    """The number of inter-token latencies so far."""
    assert metrics.inter_token_latency is not None
    return metrics.inter_token_latency.counts[-1]


def test_the_metrics_count_what_the_clients_got(vllm: RealVllm) -> None:
    with open_server(vllm.url, None) as door:
        assert door.target == f"vLLM 0.32.0 at {vllm.url}, serving tiny"
        assert door.model == str(TINY)
        before = door.metrics()
        with Clients(vllm.port) as clients:
            until(lambda: door.metrics().running == len(PROMPTS))
            busy = door.metrics()
        until(lambda: door.metrics().running == 0)
        after = door.metrics()
    count = len(clients.completions)
    assert after.generated_tokens - before.generated_tokens == count * TOKENS
    assert after.prompt_tokens - before.prompt_tokens == sum(
        completion.prompt_tokens for completion in clients.completions
    )
    # Of each answer, the first token has no token before it.
    assert observations(after) - observations(before) == count * (TOKENS - 1)
    assert 0 < busy.kv_fill < 1
    assert after.kv_fill == after.waiting == 0


def test_a_window_under_load_has_its_decode_steps_and_changes_no_answer(
    vllm: RealVllm, tmp_path: Path
) -> None:
    alone = {prompt: complete(vllm.port, prompt).text for prompt in PROMPTS}
    with Clients(vllm.port) as clients, open_server(vllm.url, None) as door:
        # The first time, this takes the server seconds.
        assert door.trace_folder(WindowPlan(tmp_path, 0)) == vllm.traces
        until(lambda: door.metrics().running == len(PROMPTS))
        until(lambda: {each.prompt for each in clients.completions} == set(PROMPTS))
        began_s = time.monotonic()
        report, answer = attached(vllm.url, tmp_path)
        ended_s = time.monotonic()
        until(
            lambda: (
                {it.prompt for it in clients.completions if it.began_s > ended_s} == set(PROMPTS)
            )
        )
    assert answer.ours_s < _ANSWER_S, answer
    path = Path(report.source.path)
    assert path.parent == vllm.traces
    assert path.name.startswith("rank0.")
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    names = [
        event["name"]
        for event in sorted(events, key=lambda event: event.get("ts", 0))
        if event.get("cat") == "user_annotation" and _STEP.fullmatch(event["name"])
    ]
    assert [step.name for step in report.steps] == names
    for step in report.steps:
        prefills, decodes = map(int, _STEP.fullmatch(step.name).groups())
        assert step.kind == ("decode" if not prefills else "mixed" if decodes else "prefill")
        assert step.batch == prefills + decodes
    assert len(report.steps) == STEPS
    # How many steps have no prefill depends on when clients ask again.
    assert ("decode", len(PROMPTS)) in {(step.kind, step.batch) for step in report.steps}
    observer = report.observer
    assert observer is not None
    assert observer.before_tokens_per_s > 0 < observer.after_tokens_per_s
    # Each client was answered before, during and after the window, and always as if alone.
    assert {each.prompt for each in clients.completions if each.ended_s < began_s} == set(PROMPTS)
    assert {each.prompt for each in clients.completions if each.began_s > ended_s} == set(PROMPTS)
    assert {(each.prompt, each.text) for each in clients.completions} == set(alone.items())


def is_read(app: Terminal, number: int) -> bool:
    """Whether a window is shown: the CPU build has no activity of a GPU."""
    is_shown = app.shows(f"· window-{number}") and app.shows(f"{STEPS} ranges of the host")
    return is_shown and not app.shows("reading")


def pressed(app: Terminal, number: int) -> AnswerTime:
    """Where the time went from the key until the window with this number is read."""
    answer = AnswerTime(app.child.pid)

    def is_answered() -> bool:
        for stage in filter(None, map(_STAGE.search, app.screen.display)):
            answer.says(stage[0])
        return is_read(app, number)

    app.child.send("t")
    app.until(is_answered, _PATIENCE_S)
    answer.answered()
    return answer


def test_the_app_from_the_first_window_to_another_model(vllm: RealVllm, tmp_path: Path) -> None:
    options = ["--out", str(tmp_path), "--iterations", str(STEPS)]
    app = Terminal(["-m", "decodescope", "attach", vllm.url, *options], 160, 40)
    with closing(app.child):
        with Clients(vllm.port):
            # The server and its clients leave the app little of a small processor.
            app.until(
                lambda: app.shows("8 running") and app.shows("t takes a window of 10 steps"),
                _PATIENCE_S,
            )
            assert app.shows(f"vLLM 0.32.0 at {vllm.url}, serving tiny")
            for number in (1, 2):
                answer = pressed(app, number)
                assert answer.ours_s < _ANSWER_S, answer
            app.child.send("D")
            first, second = sorted(vllm.traces.glob("rank0.*.json.gz"))[-2:]
            app.until(
                lambda: (
                    app.shows("step ratio")
                    and app.shows(f"[A]    {first.name}")
                    and app.shows(f"[B]    {second.name}")
                )
            )
        vllm.stop()
        app.until(lambda: app.shows("no answer for"))
        vllm.start("other")
        app.until(lambda: app.shows("serving other") and not app.shows("no answer"))
        assert not app.shows("serving tiny")
        app.child.send("q")
        app.until(app.gone)
    assert app.child.exitstatus == 0
