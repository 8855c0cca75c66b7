"""Ends every command at random moments by a signal; records how long that takes and what is left.

SIGTERM: a command and all of its processes are gone within `TERM_S`, and leave nothing. SIGKILL, of
the command or of a process that it started: no file is half written under its name, and the next
run of the same command removes what is left. Writes benchmarks/results/endings-<signal>.json.
"""

import random
import signal
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import rich_click as click

from benchmarks.checks.endings.cases import Case, cases
from benchmarks.checks.endings.leavings import left, not_whole
from benchmarks.checks.endings.target import target
from benchmarks.checks.endings.trial import Running, Trial
from benchmarks.harness.records import RESULTS, write_record
from decodescope.cli.options import number_option

TERM_S = 2.0
_WHOLE_S = 600.0


@dataclass(slots=True)
class Place:
    """The folders of a case: killed commands and their successors share them."""

    root: Path

    @property
    def work(self) -> Path:
        return self.root / "work"

    @property
    def temporary(self) -> Path:
        return self.root / "temporary"

    def variables(self) -> dict[str, str]:
        """The environment of a command, with every folder below `root`."""
        names = {"TMPDIR": "temporary", "XDG_CONFIG_HOME": "config", "XDG_STATE_HOME": "state"}
        names |= {"XDG_CACHE_HOME": "cache", "TRITON_CACHE_DIR": "triton"}
        names |= {"TORCHINDUCTOR_CACHE_DIR": "inductor"}
        for name in ("work", *names.values()):
            (self.root / name).mkdir(parents=True, exist_ok=True)
        folders = {name: str(self.root / folder) for name, folder in names.items()}
        return {**folders, "TRITON_INTERPRET": "1"}

    def start(self, case: Case) -> Running:
        variables = self.variables()
        return Running(case.arguments, self.work, variables, case.terminal, case.given)


@dataclass(slots=True)
class Ended:
    """The trials of a case, and what was wrong with them."""

    case: Case
    whole_s: float
    trials: list[Trial] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def ended(case: Case, number: signal.Signals, trials: int, root: Path, seed: str) -> Ended:
    """Run `case` once as a whole, then end it `trials` times."""
    place, chance = Place(root), random.Random(f"{seed} {case.name}")
    with place.start(case) as running:
        whole_s = running.wait_gone(case.first_s or _WHOLE_S)
        running.process.terminate()
        running.wait_gone()
    result = Ended(case, whole_s)
    kills = number == signal.SIGKILL
    while len(result.trials) < trials * case.times:
        with place.start(case) as running:
            # Not only the command: its children are killed as well.
            chosen = chance.choice((0, chance.randrange(1 << 16))) if kills else 0
            trial = running.end(number, chance.uniform(0.0, whole_s), chosen)
        if trial is not None:
            result.trials.append(trial)
            result.problems += problems(case, trial, number, place.work, place.temporary)
    if kills:
        # What is left by then, a run that nobody ends removes.
        with place.start(case) as running:
            running.wait_gone(case.first_s or _WHOLE_S)
            running.process.terminate()
            running.wait_gone()
        stays = left(place.work, place.temporary, case.outputs)
        result.problems += [f"{name} stays" for name in stays]
    return result


def problems(
    case: Case, trial: Trial, number: signal.Signals, work: Path, temporary: Path
) -> Iterator[str]:
    """What is wrong with how a trial ended, and with what is in its folders now."""
    at = f"at {trial.at_s:.2f} s"
    finishes = number == signal.SIGTERM and "another signal" in trial.printed
    if trial.gone_s > TERM_S and not finishes:
        yield f"{at}: gone after {trial.gone_s:.1f} s: {trial.printed!r}"
    for path in (path for output in case.outputs for path in work.glob(output)):
        if problem := not_whole(path):
            yield f"{at}: {problem}"
    if number == signal.SIGTERM:
        # One that comes before the handlers are set ends Python at once.
        if trial.code not in (128 + number, -number):
            yield f"{at}: exit code {trial.code}: {trial.printed!r}"
        yield from (f"{at}: left {name}" for name in left(work, temporary, case.outputs))


def summary(results: list[Ended]) -> dict[str, Any]:
    """Of each case the trials, and of all together how many and how long."""
    every = [trial for result in results for trial in result.trials]
    return {
        "trials": len(every),
        "of_children": sum(trial.child for trial in every),
        "longest_s": max(trial.gone_s for trial in every),
        "median_s": statistics.median(trial.gone_s for trial in every),
        "problems": [f"{each.case.name}: {text}" for each in results for text in each.problems],
        "commands": {
            each.case.name: {
                "arguments": " ".join(Path(part).name for part in each.case.arguments),
                "whole_s": each.whole_s,
                "longest_s": max(trial.gone_s for trial in each.trials),
                "codes": dict(Counter(str(trial.code) for trial in each.trials)),
                "trials": [
                    {key: value for key, value in asdict(trial).items() if key != "printed"}
                    for trial in each.trials
                ],
            }
            for each in results
        },
    }


@click.command("endings")
@click.option("--signal", "name", type=click.Choice(["SIGTERM", "SIGKILL"]), required=True)
@number_option(
    "--trials", default=20, show_default=True, help="Of a long command; a short one has more."
)
@number_option("--events", default=60_000, show_default=True, help="Of a trace.")
@number_option("--jobs", default=1, show_default=True, help="Commands at a time.")
@click.option("--only", metavar="NAME", multiple=True, help="A command; again for another one.")
@click.option("--seed", default="1", show_default=True)
def command(
    name: str, trials: int, events: int, jobs: int, only: tuple[str, ...], seed: str
) -> int:
    """End every command at random moments; exits with 1 if one ends late or leaves something."""
    number = signal.Signals[name]
    with tempfile.TemporaryDirectory() as folder, target(Path(folder)) as pid:
        chosen = [
            case
            for case in cases(Path(folder), events, pid)
            if (case.name in only or not only) and (case.outputs or number == signal.SIGTERM)
        ]

        def run(case: Case) -> Ended:
            result = ended(case, number, trials, Path(folder) / case.name.replace(" ", "-"), seed)
            slowest_s = max(trial.gone_s for trial in result.trials)
            sys.stderr.write(f"{case.name}: at most {slowest_s:.2f} s {result.problems}\n")
            return result

        with ThreadPoolExecutor(jobs) as pool:
            results = list(pool.map(run, chosen))
    record = summary(results)
    write_record(RESULTS / f"endings-{name.lower()}.json", record)
    return 1 if record["problems"] else 0
