"""What must hold after any case: how it ended, what it printed, what it wrote."""

import json
import re
from pathlib import Path

import msgspec

from decodescope.analyzer.schema.comparison_report import Diff
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import Report
from tests.fuzzing.case import Case
from tests.helpers.command import Done
from tests.helpers.reports import check_report

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_LACKING = ("out of memory", "Cannot allocate", "File too large", "No space left")


def check_end(case: Case, done: Done) -> None:
    """The exit code, and one clear line for an error."""
    lines = done.err.splitlines()
    last = lines[-1] if lines else ""
    assert "Traceback" not in done.err or "--debug" in case.arguments, f"traceback: {last}"
    strict = (4,) if "--strict" in case.arguments else ()
    assert done.code in (0, 1, 2, 3, *strict), f"exit code {done.code}: {last}"
    if done.code:
        assert last.startswith("decodescope: "), f"no error line: {last}"
    if done.code == 1:
        assert last.startswith("decodescope: slower than main: "), f"exit code 1: {last}"
    assert not any(words in last for words in _LACKING), f"too large: {last}"
    shown = _CONTROL.search(done.err if done.err != last else last)
    assert shown is None, f"control character {shown.group()!r} on stderr: {last!r}"


def check_output(case: Case, done: Done) -> None:
    """The data on stdout: figures that can be, JSON that decodes, no control characters."""
    if done.code not in (0, 1) or {"-h", "--help"} & {*case.arguments}:
        return
    command = case.arguments[0]
    if "--json" in case.arguments and command in ("analyze", "diff"):
        check_json(command, done.out)
        if case.is_planted:
            check_planted(case, done)
        return
    shown = _CONTROL.search(done.out)
    assert shown is None, f"control character {shown.group()!r} on stdout"


def check_json(command: str, text: str) -> None:
    """What `analyze --json` or `diff --json` printed."""
    if command == "diff":
        check_diff(msgspec.json.decode(text, type=Diff))
    elif '"ranks":' in text[:40]:
        ranks = msgspec.json.decode(text, type=RanksReport)
        for report in [one.report for one in ranks.ranks] + [ranks.merged] * bool(ranks.merged):
            assert report is not None
            check_report(report)
    else:
        check_report(msgspec.json.decode(text, type=Report))


def check_planted(case: Case, done: Done) -> None:
    """The step time is the planted one, and no shorter than its limit."""
    assert done.code == 0, f"a whole trace: exit code {done.code}"
    answer = msgspec.json.decode(done.out, type=Report).answer
    assert answer.step_ns == case.step_ns, f"{answer.step_ns} ns, planted {case.step_ns} ns"
    assert (answer.limit_ns or 0) <= answer.whole_ns, f"limit {answer.limit_ns} ns"


def check_diff(diff: Diff) -> None:
    """The ratio is that of the step times, the parts add up to their change, and an interval
    contains the ratio."""
    answer = diff.answer
    base_ns, other_ns = answer.base_step_ns, answer.other_step_ns
    if base_ns is not None and other_ns is not None:
        assert sum(row.change_ns for row in answer.parts) == other_ns - base_ns
        assert answer.ratio == (other_ns / base_ns if base_ns and other_ns else None)
    if answer.interval is not None:
        assert answer.ratio is not None
        assert answer.interval.low <= answer.ratio <= answer.interval.high


def check_files(case: Case, folder: Path) -> None:
    """Inputs as they were, and nothing new but the given outputs."""
    for name in case.files.keys() - set(case.outputs):
        assert (folder / name).read_bytes() == case.files[name], f"{name} was changed"
    outputs = [Path(output) for output in case.outputs]
    known = {*map(Path, case.files), *map(Path, case.links), *outputs, Path("folder")}
    known |= {parent for output in outputs for parent in output.parents}
    for path in folder.rglob("*"):
        name = path.relative_to(folder)
        inside = any(parent in outputs for parent in name.parents[:-1])
        assert name in known or inside, f"{name} was left"
        assert not str(name).endswith(".part"), f"{name} was left"
        if path.is_file() and name.name == "out.json":
            json.loads(path.read_bytes())
