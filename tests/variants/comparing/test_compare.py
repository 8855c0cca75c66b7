"""The rounds of a comparison with fake runs: order, failures, interruptions."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from decodescope.analyzer.comparing.comparison_messages import (
    ComparisonEvent,
    ComparisonProgress,
    RoundCompared,
    RunMeasured,
)
from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.kernel_report import StepTimes
from decodescope.analyzer.schema.report import Finding, Health
from decodescope.analyzer.schema.run_report import Accuracy, RunReport
from decodescope.analyzer.schema.step_report import Bandwidth
from decodescope.variants import registry
from decodescope.variants.comparing.command import CompareRequest, compare_variants
from decodescope.variants.comparing.job_process import (
    AccuracyDone,
    AccuracyJob,
    Job,
    RunDone,
    RunJob,
)
from decodescope.variants.machine.environment import device_name
from decodescope.variants.registry import Variant

TRACE = Path(__file__).resolve().parents[2] / "data" / "cpu_two_blocks.json.gz"
CONFIG = WorkerConfig(variant="", batch=1, tokens=8, model="tiny", device="cpu")
ACCURACY = Accuracy("fp32", "a text", 4, 0.01, 0.001, 0.99, 7.0, 1.01)


def report(variant: str, tokens_per_s: float) -> RunReport:
    return RunReport(
        schema_version=3,
        model="tiny",
        weights="bundled",
        variant=variant,
        device="cpu",
        device_name=device_name("cpu"),
        dtype="fp32",
        batch=1,
        context=128,
        tokens=8,
        prompt_token_ids=[[1]],
        output_token_ids=[[2]],
        output_text=None,
        timed_steps=8,
        tokens_per_s=tokens_per_s,
        prefill_ns=1000,
        step_ns=StepTimes(1000, 1000, 1000, 1000),
        launch_calls_per_step=None,
        gpu_ops_per_step=3.0,
        gpu_idle_fraction=0.1,
        bytes_per_step=100,
        bandwidth=Bandwidth(1.0, None, None, None, None),
        answer=Answer(),
        health=Health("ok", 0, ()),
        environment={},
    )


class FakeRuns:
    """Does jobs at once; `fail` maps (variant, number of earlier runs) to the error to raise."""

    def __init__(self, fail: dict[tuple[str, int], BaseException] | None = None) -> None:
        self.jobs: list[Job] = []
        self._fail = fail or {}

    @property
    def ran(self) -> list[str]:
        return [job.config.variant for job in self.jobs if isinstance(job, RunJob)]

    def __call__(self, job: Job, say: Callable[[str], None]) -> Any:
        name = job.config.variant if isinstance(job, RunJob) else "accuracy"
        before = self.ran.count(name)
        self.jobs.append(job)
        say("busy")
        if isinstance(job, RunJob):
            shutil.copy(TRACE, job.trace_path)
        if (name, before) in self._fail:
            raise self._fail[name, before]
        if isinstance(job, AccuracyJob):
            return AccuracyDone({job.variants[0]: ACCURACY}, (Finding("accuracy_missing", "why"),))
        return RunDone(report(name, 100.0 + 10 * len(self.jobs)))


@pytest.fixture(autouse=True)
def three_variants(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [Variant(name, "for a test", False, print) for name in ("slow/er", "other")]
    monkeypatch.setattr(registry, "_installed", lambda: (found, []))


def request(*variants: str, repeats: int = 3, **more: Any) -> CompareRequest:
    return CompareRequest(CONFIG, variants or ("eager", "slow/er", "other"), repeats, **more)


def nothing(event: ComparisonEvent) -> None:
    pass


def codes(findings: tuple[Finding, ...]) -> list[str]:
    return [finding.code for finding in findings]


def test_variants_take_turns_and_rounds_are_numbered() -> None:
    run = FakeRuns()
    compared = compare_variants(request(), nothing, run)
    runs = compared.runs
    assert run.ran == ["eager", "slow/er", "other"] * 3
    assert [(run.variant, run.round) for run in runs] == [
        (variant, round) for round in range(3) for variant in ("eager", "slow/er", "other")
    ]
    assert [run.tokens_per_s for run in runs] == [110.0 + 10 * number for number in range(9)]
    assert compared.comparison.rounds == 3
    pairs = [(pair.base, pair.other) for pair in compared.comparison.pairs]
    assert ("eager", "slow/er") in pairs
    assert ("slow/er", "other") in pairs


def test_accuracy_is_scored_once_and_added_to_every_run_of_its_variant() -> None:
    run = FakeRuns()
    comparison = compare_variants(request(text="to score"), nothing, run)
    (job,) = (job for job in run.jobs if isinstance(job, AccuracyJob))
    assert job is run.jobs[-1]
    assert (job.variants, job.text) == (("eager", "slow/er", "other"), "to score")
    assert {run.variant: run.accuracy for run in comparison.runs} == {
        "eager": ACCURACY,
        "slow/er": None,
        "other": None,
    }
    assert "accuracy_missing" in codes(comparison.comparison.findings)


def test_windows_are_those_of_the_last_round(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "out"
    windows = compare_variants(request(keep=folder), nothing, FakeRuns()).windows
    assert {name: window.source.path for name, window in windows.items()} == {
        "eager": f"{folder}/eager-round2.json.gz",
        "slow/er": f"{folder}/slow%2Fer-round2.json.gz",
        "other": f"{folder}/other-round2.json.gz",
    }
    kept = sorted(path.name for path in folder.iterdir())
    assert kept == sorted(
        f"{name}-round{round}.json.gz"
        for name in ("eager", "slow%2Fer", "other")
        for round in range(3)
    )
    assert all(path.read_bytes() == TRACE.read_bytes() for path in folder.iterdir())


def test_without_a_folder_traces_are_deleted() -> None:
    run = FakeRuns()
    windows = compare_variants(request(), nothing, run).windows
    paths = [Path(window.source.path) for window in windows.values()]
    written = [job.trace_path for job in run.jobs if isinstance(job, RunJob)]
    assert [str(path) for path in paths] == written[-3:]
    assert not any(path.exists() or path.parent.exists() for path in paths)


def test_progress_names_round_variant_and_the_last_rate() -> None:
    reported: list[ComparisonEvent] = []
    compare_variants(request("eager", "other", repeats=2), reported.append, FakeRuns())
    assert [event.describe() for event in reported if isinstance(event, ComparisonProgress)] == [
        "round 1 of 2: eager",
        "round 1 of 2: eager: busy",
        "round 1 of 2: other",
        "round 1 of 2: other: busy",
        "round 2 of 2: eager (110 tokens/s last)",
        "round 2 of 2: eager (110 tokens/s last): busy",
        "round 2 of 2: other (120 tokens/s last)",
        "round 2 of 2: other (120 tokens/s last): busy",
        "accuracy: busy",
        "comparing",
    ]
    measured = [event.report for event in reported if isinstance(event, RunMeasured)]
    assert [(run.variant, run.round, run.tokens_per_s) for run in measured] == [
        ("eager", 0, 110.0),
        ("other", 0, 120.0),
        ("eager", 1, 130.0),
        ("other", 1, 140.0),
    ]
    assert not any(isinstance(event, RoundCompared) for event in reported)


def test_each_round_is_compared_with_those_before_it_if_asked() -> None:
    reported: list[ComparisonEvent] = []
    run = FakeRuns({("other", 1): MissingRequirement("no room")})
    asked = request("eager", "other", repeats=4, each_round=True)
    done = compare_variants(asked, reported.append, run)
    compared = [event.comparison for event in reported if isinstance(event, RoundCompared)]
    assert [comparison.comparison.rounds for comparison in compared] == [1, 1, 2, 3]
    assert [len(comparison.runs) for comparison in compared] == [2, 2, 4, 6]
    assert "round_left_out" in codes(compared[1].comparison.findings)
    assert all(run.accuracy is None for run in compared[-1].runs)
    # The last one is the comparison that is returned, but for accuracy.
    assert compared[-1].comparison.pairs == done.comparison.pairs
    assert compared[-1].windows == done.windows
    assert done.runs[0].accuracy == ACCURACY


@pytest.mark.parametrize("kind", [InputError, MissingRequirement])
def test_a_failure_in_the_first_round_ends_it_and_names_the_variant(
    kind: type[Exception], tmp_path: Path
) -> None:
    run = FakeRuns({("slow/er", 0): kind("no room")})
    with pytest.raises(kind, match=r"^variant slow/er failed: no room$"):
        compare_variants(request(keep=tmp_path), nothing, run)
    assert run.ran == ["eager", "slow/er"]
    assert list(tmp_path.iterdir()) == []


def test_a_later_failure_drops_its_round_for_every_variant(tmp_path: Path) -> None:
    run = FakeRuns({("slow/er", 2): MissingRequirement("its process was killed by SIGKILL")})
    comparison = compare_variants(request(repeats=4, keep=tmp_path), nothing, run)
    assert [run.round for run in comparison.runs] == [0, 0, 0, 1, 1, 1, 3, 3, 3]
    assert comparison.comparison.rounds == 3
    message = next(f.message for f in comparison.comparison.findings if f.code == "round_left_out")
    assert message == (
        "round 3 of 4 is left out: variant slow/er failed: its process was killed by SIGKILL"
    )
    assert not list(tmp_path.glob("*round2*"))
    assert all("round3" in window.source.path for window in comparison.windows.values())


def test_an_interrupt_keeps_the_complete_rounds(tmp_path: Path) -> None:
    run = FakeRuns({("other", 2): KeyboardInterrupt()})
    comparison = compare_variants(request(repeats=5, keep=tmp_path), nothing, run)
    assert [run.round for run in comparison.runs] == [0, 0, 0, 1, 1, 1]
    assert codes(comparison.comparison.findings)[0] == "interrupted"
    assert "round 3 of 5" in comparison.comparison.findings[0].message
    assert not any(isinstance(job, AccuracyJob) for job in run.jobs)
    assert len(list(tmp_path.iterdir())) == 6
    assert all("round1" in window.source.path for window in comparison.windows.values())


def test_an_interrupt_before_a_complete_round_is_raised(tmp_path: Path) -> None:
    run = FakeRuns({("other", 0): KeyboardInterrupt()})
    with pytest.raises(KeyboardInterrupt):
        compare_variants(request(keep=tmp_path), nothing, run)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("error", "code"),
    [(KeyboardInterrupt(), "interrupted"), (MissingRequirement("no room"), "accuracy_missing")],
)
def test_without_accuracy_the_rates_are_still_there(error: BaseException, code: str) -> None:
    comparison = compare_variants(request(), nothing, FakeRuns({("accuracy", 0): error}))
    assert len(comparison.runs) == 9
    assert all(run.accuracy is None for run in comparison.runs)
    assert code in codes(comparison.comparison.findings)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"variants": ()}, "needs at least two"),
        ({"variants": ("eager",)}, "--variants eager: a comparison needs at least two"),
        ({"variants": ("eager", "egaer")}, "did you mean eager"),
        ({"variants": ("eager", "other", "eager")}, "eager is named twice"),
        ({"variants": ("eager", "")}, "unknown variant ''"),
        ({"variants": ("eager", "compiled")}, "compiled: needs a CUDA device"),
        ({"repeats": 0}, "--repeats 0"),
        ({"text": " \n"}, "--text: the text is empty"),
        ({"config": msgspec.structs.replace(CONFIG, tokens=0)}, "--tokens 0"),
        ({"config": msgspec.structs.replace(CONFIG, model="tini")}, "unknown model 'tini'"),
        ({"config": msgspec.structs.replace(CONFIG, dtype="fp64")}, "fp64"),
        ({"keep": TRACE}, "--out"),
        ({"keep": TRACE / "below"}, "--out"),
    ],
)
def test_bad_requests_are_refused_before_the_first_run(wrong: dict[str, Any], words: str) -> None:
    run = FakeRuns()
    right = {"config": CONFIG, "variants": ("eager", "other"), "repeats": 3}
    with pytest.raises((InputError, MissingRequirement), match=words) as caught:
        compare_variants(CompareRequest(**(right | wrong)), nothing, run)
    assert run.jobs == []
    assert "\n" not in str(caught.value)
