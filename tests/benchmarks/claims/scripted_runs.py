"""Jobs of a comparison that are done at once, with figures from a script."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.claims.claim import Setup
from benchmarks.claims.racing import Racing
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.schema.kernel_report import StepTimes
from decodescope.analyzer.schema.report import Finding, Health
from decodescope.analyzer.schema.run_report import Accuracy, RunReport
from decodescope.variants.comparing.job_process import AccuracyDone, Job, RunDone, RunJob
from tests.helpers.answers import answer_of
from tests.helpers.fake_clock import FakeClock

TRACE = Path(__file__).resolve().parents[2] / "data" / "cpu_two_blocks.json.gz"


@dataclass(frozen=True)
class Scripted:
    """What a variant's runs report. `step_ns` has the mean step of each round; the last repeats."""

    step_ns: tuple[int, ...] = (1_000_000,)
    busy_ns: int = 500_000
    error: float | None = 0.01
    kl: float = 0.001
    bytes_per_step: int = 100_000_000
    perplexity_ratio: float = 1.0
    fails: DecodescopeError | None = None
    device_name: str = "NVIDIA H200"


@dataclass
class ScriptedRuns:
    """Does what `variants` says of each; remembers the jobs."""

    variants: Mapping[str, Scripted]
    jobs: list[Job] = field(default_factory=list)

    @property
    def ran(self) -> list[str]:
        return [job.config.variant for job in self.jobs if isinstance(job, RunJob)]

    def __call__(self, job: Job, say: Callable[[str], None]) -> Any:
        say("busy")
        if isinstance(job, RunJob):
            script = self.variants[job.config.variant]
            round = self.ran.count(job.config.variant)
            self.jobs.append(job)
            if script.fails is not None:
                raise script.fails
            assert job.trace_path is not None
            shutil.copy(TRACE, job.trace_path)
            step_ns = script.step_ns[min(round, len(script.step_ns) - 1)]
            return RunDone(run_report(job, script, step_ns))
        self.jobs.append(job)
        scored = {
            name: accuracy(script)
            for name in job.variants
            if (script := self.variants[name]).error is not None
        }
        missing = [name for name in job.variants if name not in scored]
        return AccuracyDone(
            scored, tuple(Finding("accuracy_missing", f"no accuracy of {one}") for one in missing)
        )


def accuracy(script: Scripted) -> Accuracy:
    assert script.error is not None
    return Accuracy(
        "fp32",
        "a text",
        4,
        script.error,
        script.kl,
        0.9,
        7.0 * script.perplexity_ratio,
        script.perplexity_ratio,
    )


def run_report(job: RunJob, script: Scripted, step_ns: int) -> RunReport:
    config = job.config
    assert config.model is not None
    assert config.context is not None
    assert config.dtype is not None
    return RunReport(
        schema_version=2,
        model=config.model,
        weights="random",
        variant=config.variant,
        device="cuda",
        device_name=script.device_name,
        dtype=config.dtype,
        batch=config.batch,
        context=config.context,
        tokens=config.tokens,
        prompt_token_ids=[[1]],
        output_token_ids=[[2]],
        output_text=None,
        timed_steps=8,
        tokens_per_s=1e9 / step_ns,
        prefill_ns=1000,
        step_ns=StepTimes(step_ns, step_ns, step_ns, step_ns),
        launch_calls_per_step=3.0,
        gpu_ops_per_step=3.0,
        gpu_idle_fraction=0.1,
        bytes_per_step=script.bytes_per_step,
        bandwidth=None,
        answer=answer_of(
            {"gate_up": script.busy_ns, "launch_call": max(0, step_ns - script.busy_ns)}
        ),
        health=Health("ok", 0, ()),
        environment={},
    )


def setup_with(runs: ScriptedRuns, said: list[str] | None = None) -> Setup:
    """A read peak of 1 TB/s."""
    racing = Racing(FakeClock(1e3), 1 << 20, 1e12, {"bf16": 1e12}, 3)  # type: ignore[arg-type]
    return Setup(racing, (lambda _: None) if said is None else said.append, run=runs)
