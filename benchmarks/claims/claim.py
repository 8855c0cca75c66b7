"""What a claim is: a source, and a function that measures its rows on this GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.claims.racing import Racing
from benchmarks.claims.report import Race, Row, Source
from decodescope.variants.comparing.command import RunJobs
from decodescope.variants.comparing.job_process import run_job


@dataclass(frozen=True, slots=True)
class Setup:
    """What claims are measured with.

    `racing` measures entrants of the same work, `say` is called with what is being done.
    `gpt_fast` is a checkout of gpt-fast, if the user gave one. `datasheet_bytes_per_s` is the
    bandwidth that the GPU's datasheet states, of which sources give shares. `run` does one job of a
    comparison of whole models, each in a process of its own.
    """

    racing: Racing
    say: Callable[[str], None]
    gpt_fast: Path | None = None
    datasheet_bytes_per_s: float | None = None
    run: RunJobs = run_job


@dataclass(frozen=True, slots=True)
class Measured:
    """A claim's rows in the order of the source, and the races that they come from."""

    rows: tuple[Row, ...]
    races: tuple[Race, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """One publication's claim. `measure` may raise any error of decodescope: the claim then has
    that error, and the others are measured."""

    name: str
    title: str
    source: Source
    measure: Callable[[Setup], Measured]
