"""A pytest plugin: keeps the outcome of each test as soon as it has one, and leaves out the tests
that had one at the start.

    python -m pytest -p benchmarks.checks.kept_outcomes --kept-outcomes FILE

A line of FILE is the JSON of one test's name and outcome. What a process of pytest-xdist leaves out
must not change while others collect: it reads FILE.start, the copy that `begin` makes.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

_WORST_LAST = ("passed", "skipped", "failed")


def begin(file: Path, machine: Mapping[str, object]) -> dict[str, str]:
    """The outcomes that an interrupted run kept in `file`, which goes on. They are dropped unless
    that run was of the same commit, without changes, on the same `machine`."""
    mark, now = file.with_suffix(".machine"), json.dumps(machine, sort_keys=True)
    clean = not str(machine.get("commit") or "+").endswith("+")
    if not (clean and file.is_file() and mark.is_file() and mark.read_text() == now):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("")
        mark.write_text(now)
    kept = read_outcomes(file)
    for path in (file, _at_the_start(file)):
        path.write_text("".join(_line(*one) for one in kept.items()))
    return kept


def read_outcomes(file: Path) -> dict[str, str]:
    """The outcome of each test by its name. A last line that was cut off is dropped."""
    found: dict[str, str] = {}
    for line in file.read_text().splitlines(keepends=True):
        if line.endswith("\n"):
            found.update([json.loads(line)])
    return found


def _line(test: str, outcome: str) -> str:
    return json.dumps([test, outcome]) + "\n"


def worst(outcomes: Iterable[str]) -> str:
    """The outcome of a test by those of its phases."""
    return max(outcomes, key=_WORST_LAST.index)


def _at_the_start(file: Path) -> Path:
    return file.with_suffix(".start")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kept-outcomes", metavar="FILE", type=Path, required=True)


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Keeper(config.getoption("--kept-outcomes")))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    done = read_outcomes(_at_the_start(config.getoption("--kept-outcomes")))
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in done])
    items[:] = [item for item in items if item.nodeid not in done]


class _Keeper:
    """Writes a line when the last phase of a test has ended, and names a failure at once."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._phases: dict[str, list[str]] = {}

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """A file that cannot be imported counts as a test that failed."""
        if report.failed:
            _say_failure(report, "collection")
            self._keep(report.nodeid, report.outcome)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        phases = self._phases.setdefault(report.nodeid, [])
        phases.append(report.outcome)
        if report.failed:
            _say_failure(report, report.when)
        # Of a process that crashed, pytest-xdist reports neither setup nor teardown.
        if report.when in ("teardown", "???"):
            self._keep(report.nodeid, worst(self._phases.pop(report.nodeid)))

    def _keep(self, test: str, outcome: str) -> None:
        with self._file.open("a") as kept:
            kept.write(_line(test, outcome))


def _say_failure(report: pytest.CollectReport | pytest.TestReport, when: str | None) -> None:
    message = getattr(report.longrepr, "reprcrash", None) or str(report.longrepr)
    first = str(getattr(message, "message", message)).partition("\n")[0]
    sys.stderr.write(f"\nFAILED {report.nodeid} ({when}): {first[:200]}\n")
