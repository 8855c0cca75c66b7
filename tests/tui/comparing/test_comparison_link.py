"""The app's link to a comparison: a real one on the CPU, and scripted ones that misbehave."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.comparison_messages import (
    ComparisonConfig,
    ComparisonDone,
    ComparisonProgress,
    RoundCompared,
    RunMeasured,
)
from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.protocol.messages import Bye, Failure, WorkerConfig, encode_frame
from decodescope.tui.link.base import WorkerDied
from decodescope.tui.link.comparison import ComparisonLink
from tests.helpers.comparison_reports import runs_of
from tests.helpers.processes import alive, children, gone

PATIENCE_S = 120
WORKLOAD = WorkerConfig(variant="", batch=16, tokens=20, context=16, model="tiny", device="cpu")
PACKAGE = """
from decodescope.variants.registry import Variant

def build(loaded, workload, device):
    from decodescope.variants.steps.compiled_step import StaticStep
    class PlainStep(StaticStep):
        def ungraphed(self):
            return None
    print("what a library prints")
    return PlainStep(loaded, workload, lambda forward: forward)

STATIC = Variant("static", "a cache of fixed size", False, build)
"""


@pytest.fixture
def static(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed package with the variant `static`, so that two variants run on the CPU."""
    info = tmp_path / "installed" / "mine-1.0.dist-info"
    info.mkdir(parents=True)
    (info.parent / "mine_step.py").write_text(PACKAGE)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[decodescope.variants]\nstatic = mine_step:STATIC\n")
    monkeypatch.setenv("PYTHONPATH", str(info.parent), prepend=os.pathsep)
    # A killed process cannot remove its temporary files.
    (tmp_path / "temporary").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "temporary"))


def config(rounds: int = 2) -> ComparisonConfig:
    return ComparisonConfig(WORKLOAD, ("eager", "static"), rounds)


async def until(link: ComparisonLink, *kinds: type) -> list[object]:
    """Events up to and including the first of one of `kinds`."""
    events: list[object] = []
    async with asyncio.timeout(PATIENCE_S):
        while True:
            event = await link.receive()
            assert event is not None, events
            events.append(event)
            if isinstance(event, kinds):
                return events


def of(events: list[object], kind: type) -> list:
    return [event for event in events if isinstance(event, kind)]


@pytest.mark.slow
@pytest.mark.usefixtures("static")
async def test_a_real_comparison_reports_runs_their_round_and_its_end() -> None:
    link = ComparisonLink()
    try:
        await link.start(config(rounds=1))
        events = await until(link, WorkerDied)
    finally:
        folder = link._folder.path
        await link.close()
    assert of(events, ComparisonProgress)[0].describe() == "round 1 of 1: eager"
    measured = [event.report for event in of(events, RunMeasured)]
    assert [(one.variant, one.round) for one in measured] == [("eager", 0), ("static", 0)]
    (compared,) = (event.comparison for event in of(events, RoundCompared))
    assert compared.comparison.rounds == 1
    (done,) = of(events, ComparisonDone)
    assert done.comparison.windows == compared.windows
    assert set(compared.windows) == {"eager", "static"}
    assert all(len(window.steps) == 3 for window in compared.windows.values())
    runs = done.comparison.runs
    assert all(one.output_token_ids == runs[0].output_token_ids for one in runs)
    assert all(one.tokens_per_s > 0 for one in runs)
    assert runs[0].environment["date"] <= runs[1].environment["date"]
    for one in runs:
        assert one.accuracy is not None
        assert one.accuracy.logit_rel_error < 1e-5
        assert one.accuracy.top1_agreement == 1
    assert runs[0].accuracy.logit_rel_error == 0
    stages = [event.describe() for event in of(events, ComparisonProgress)]
    assert "round 1 of 1: static" in stages
    assert "what a library prints" in "".join(events[-1].log_tail)
    assert events[-2:] == [Bye("done"), WorkerDied(0, events[-1].log_tail)]
    assert not folder.exists()


@pytest.mark.slow
@pytest.mark.usefixtures("static")
async def test_a_cancelled_comparison_keeps_its_rounds_and_leaves_no_process() -> None:
    link = ComparisonLink()
    try:
        await link.start(config(rounds=50))
        await until(link, RoundCompared)
        events = await until(link, ComparisonProgress)
        assert events[-1].describe().startswith("round 2 of 50: eager (")
        (run,) = await asyncio.to_thread(_children_of, link.pid)
        await link.end()
        assert link.pid is None
        assert not alive(run)
        events = await until(link, Bye)
        (done,) = of(events, ComparisonDone)
        findings = done.comparison.comparison.findings
        assert (done.comparison.comparison.rounds, findings[0].code) == (1, "interrupted"), findings
        assert not of(events, Failure)

        # Before a round is complete there is nothing to compare.
        await link.start(config())
        await until(link, ComparisonProgress)
        await link.end()
        events = await until(link, Bye)
        assert (of(events, ComparisonDone), events[-1]) == ([], Bye("cancelled"))
    finally:
        await link.close()
    assert await link.receive() is None


def _children_of(pid: int) -> list[int]:
    while not (found := children(pid)):
        pass
    return found


@pytest.mark.slow
@pytest.mark.usefixtures("static")
async def test_a_killed_comparison_takes_its_run_with_it() -> None:
    link = ComparisonLink()
    try:
        await link.start(config())
        await until(link, ComparisonProgress)
        (run,) = await asyncio.to_thread(_children_of, link.pid)
        os.kill(link.pid, signal.SIGKILL)
        (died,) = of(await until(link, WorkerDied), WorkerDied)
        assert died.exit_code == -signal.SIGKILL
        assert await asyncio.to_thread(gone, run)
    finally:
        await link.close()


@pytest.mark.parametrize(
    ("variants", "exit_code", "words"),
    [
        (("eager",), 2, "needs at least two"),
        (("eager", "compiled"), 3, "compiled: needs a CUDA device"),
    ],
)
async def test_what_cannot_be_compared_is_one_failure(
    variants: tuple[str, ...], exit_code: int, words: str
) -> None:
    link = ComparisonLink()
    try:
        await link.start(ComparisonConfig(WORKLOAD, variants, 2))
        events = await until(link, WorkerDied)
    finally:
        await link.close()
    (failure,) = of(events, Failure)
    assert failure.exit_code == exit_code == events[-1].exit_code
    assert words in failure.message
    assert "\n" not in failure.message


def scripted(folder: Path, body: str) -> ComparisonLink:
    """A link to a comparison that is a few lines of Python: `control` is its socket."""
    path = folder / "comparison.py"
    path.write_text(
        "import os, signal, socket, sys, time\n"
        "control = socket.socket(fileno=int(sys.argv[1]))\n" + body
    )
    return ComparisonLink((sys.executable, str(path)))


async def test_what_was_said_before_a_forced_end_is_received(tmp_path: Path) -> None:
    runs = runs_of({"eager": [1.0, 2.0], "other": [3.0, 4.0]})
    frames = [encode_frame(RunMeasured(run)) for run in runs]
    frames.append(encode_frame(RoundCompared(compare_runs(runs, {}))))
    body = (
        f"signal.signal(signal.SIGTERM, signal.SIG_IGN)\ncontrol.recv(100)\n"
        f"control.sendall({b''.join(frames)!r})\ntime.sleep(600)\n"
    )
    link = scripted(tmp_path, body)
    link.quit_grace_s = 0.5
    try:
        await link.start(config())
        pid = link.pid
        await link.end()
        assert not alive(pid)
        events = await until(link, RoundCompared)
        assert [event.report for event in of(events, RunMeasured)] == runs
    finally:
        await link.close()


async def test_a_second_comparison_has_nothing_of_the_first(tmp_path: Path) -> None:
    body = f"control.sendall({encode_frame(ComparisonProgress(2))!r})\ncontrol.recv(100)\n"
    link = scripted(tmp_path, body)
    try:
        await link.start(config())
        first = link.pid
        await asyncio.sleep(0.5)
        await link.start(config())
        assert link.pid != first
        assert await asyncio.to_thread(gone, first)
        assert await link.receive() == ComparisonProgress(2)
        assert link._inbox == type(link._inbox)()
    finally:
        await link.close()


async def test_a_comparison_that_cannot_be_started_is_a_missing_requirement(tmp_path: Path) -> None:
    link = ComparisonLink((str(tmp_path / "no-such-python"),))
    with pytest.raises(MissingRequirement, match=r"the comparison cannot be started.*no-such-pyth"):
        await link.start(config())
    await link.close()
