"""From the app's `View` to what each panel shows. Figures are picked, never computed, here."""

from dataclasses import dataclass

from decodescope.analyzer import formatting as fmt
from decodescope.analyzer.reports.per_step import (
    gap_rows,
    gpu_ops_per_step,
    idle_fraction,
    kernel_rows,
    launch_calls_per_step,
)
from decodescope.analyzer.roofline.bandwidth import bandwidth
from decodescope.analyzer.schema.run_report import Bandwidth
from decodescope.tui.model.session import View
from decodescope.tui.panels.figures import Figure, FiguresData
from decodescope.tui.panels.figures import Tone as FigureTone
from decodescope.tui.panels.lines import TextData, VerdictData
from decodescope.tui.panels.spark import SparkData
from decodescope.tui.panels.tables import GapTable, KernelTable
from decodescope.tui.panels.timeline import TimelineData
from decodescope.tui.panels.title import Badge, TitleData
from decodescope.tui.panels.title import Tone as BadgeTone
from decodescope.tui.panels.variants import VariantsData

STALE_AFTER_S = 3.0
_OBSERVED_MATTERS = 1.05
_FILE_CELLS = 28
_OTHER_PACE = 1.3
_TONES: dict[str, BadgeTone] = {
    "running": "good", "capturing": "busy", "paused": "idle", "ended": "idle", "failed": "bad",
    "worker died": "bad", "trace": "good", "unreadable": "bad",
}  # fmt: skip
_VERDICTS = {"launch": "launch-bound", "memory": "memory-bound", "compute": "compute-bound",
             "mixed": "mixed", "unknown": "no verdict"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Moment:
    """When and how the view is looked at: `now` in monotonic seconds."""

    now: float
    frozen: bool = False
    replay_paused: bool = False


def title(view: View, moment: Moment) -> TitleData:
    """State badges and the facts about what runs."""
    badges = []
    if moment.frozen:
        badges.append(Badge("frozen", "busy"))
    if view.kind == "replay":
        badges.append(Badge("replay", "busy"))
    text = view.state
    if view.detail and view.state in ("starting", "loading", "building", "ended"):
        text = f"{view.state}: {view.detail}"
    tone = _TONES.get(view.state, "busy")
    badges.append(Badge("paused", "idle") if moment.replay_paused else Badge(text, tone))
    facts, warned = _facts(view)
    return TitleData(tuple(badges), facts, warned)


def _facts(view: View) -> tuple[tuple[str, ...], frozenset[str]]:
    about = view.hello or (view.window.capture if view.window else None)
    file = view.variant if view.kind == "trace" else view.source_name
    facts = [fmt.shorten(file, _FILE_CELLS)] if file else []
    if about is None:
        return tuple(facts), frozenset()
    facts.append(about.model)
    if about.device == "cpu":
        facts.append("device: cpu")
    if about.weights == "random":
        facts.append("random weights")
    if view.kind != "trace" and view.variant:
        facts.append(view.variant)
    elif view.window is not None and view.window.capture is not None:
        facts.append(view.window.capture.variant)
    drawn = fmt.sampling_facts(view.hello.sampling if view.hello else None)
    facts.extend(drawn[:1])
    if about.device != "cpu":
        facts.append(about.device_name)
    facts.extend((about.dtype, f"batch {about.batch}", f"context {about.context}"))
    facts.extend(drawn[1:])
    return tuple(facts), frozenset({"random weights", "device: cpu"})


def on_cpu(view: View) -> bool:
    """Whether leaf operators of a CPU stand for GPU ops in the figures."""
    about = view.hello or (view.window.capture if view.window else None)
    return about is not None and about.device == "cpu"


def figures(view: View, moment: Moment) -> FiguresData:
    """The header figures."""
    stats, report = view.stats, view.window.report if view.window else None
    live: FigureTone = "plain" if view.live_figures or view.kind == "trace" else "stale"
    lead: FigureTone = "lead" if live == "plain" else "stale"
    cpu = on_cpu(view)
    used = _mbu(view)
    datasheet = used is not None and used.mbu_of == "datasheet"
    ops, op = ("operators", "ops") if cpu else ("GPU ops", "GPU ops")
    main = (
        Figure("TOK/S", "tok/s", fmt.rate(stats.tokens_per_s if stats else None), lead),
        Figure("MS/STEP p50", "ms p50", fmt.milliseconds(stats.step_p50_ns if stats else None),
               live),
        Figure("LAUNCHES/STEP", "launches",
               fmt.number(launch_calls_per_step(report) if report and not cpu else None), live),
        Figure(f"{ops.upper()}/STEP", op,
               fmt.number(gpu_ops_per_step(report) if report else None), live),
        Figure("OP IDLE %" if cpu else "GPU IDLE %", "idle %",
               fmt.percent(idle_fraction(report) if report else None), live),
        Figure("MBU % (datasheet)" if datasheet else "MBU %", "MBU %",
               fmt.percent(used.mbu if used else None), live),
    )  # fmt: skip
    side = (
        Figure("", "ms p99", fmt.milliseconds(stats.step_p99_ns if stats else None), live),
        Figure("", "tokens", fmt.count(stats.tokens if stats else None, 7), live),
        Figure("", "age", *_age(view, moment)),
        Figure("", "dropped", fmt.count(stats.dropped if stats else None, 7),
               "warn" if stats and stats.dropped else "stale"),
    )  # fmt: skip
    return FiguresData(main, side, "launches, ops and idle: " + window_note(view, moment)
                       if report else "")  # fmt: skip


def _mbu(view: View) -> Bandwidth | None:
    stats, hello = view.stats, view.hello
    if stats is None or hello is None:
        return None
    return bandwidth(
        stats.bytes_per_step,
        stats.step_p50_ns,
        hello.measured_peak_bytes_per_s,
        hello.datasheet_peak_bytes_per_s,
    )


def _age(view: View, moment: Moment) -> tuple[str, FigureTone]:
    if moment.frozen:
        return "frozen", "warn"
    if view.stats_at is None or view.stats is None:
        return fmt.UNKNOWN, "stale"
    seconds = moment.now - view.stats_at
    late = seconds > STALE_AFTER_S and (view.live_figures or view.died is not None)
    return fmt.age(seconds), "warn" if late else "plain"


def window_note(view: View, moment: Moment) -> str:
    """Which window the figures come from, how old it is, and what profiling cost."""
    window = view.window
    if window is None:
        return ""
    parts = []
    if view.kind != "trace" and not moment.frozen:
        parts.append(f"window {fmt.age(moment.now - window.at)} ago")
    elif moment.frozen:
        parts.append("frozen")
    parts.extend(_other_pace(view))
    observer = window.report.observer
    if observer is not None and observer.ratio is not None and observer.ratio > _OBSERVED_MATTERS:
        parts.append(f"profiler \u00d7{observer.ratio:.2f}")
    if window.report.health.status == "degraded":
        parts.append("degraded trace")
    return " · ".join(parts)


def _other_pace(view: View) -> list[str]:
    """A warning where the run was faster or slower when the window was captured."""
    capture = view.window.capture if view.window is not None else None
    then_ns = capture.unprofiled_step_ns if capture is not None else None
    if view.stats is None or not then_ns:
        return []
    now_ns = view.stats.step_p50_ns
    if max(now_ns, then_ns) <= _OTHER_PACE * min(now_ns, then_ns):
        return []
    return [f"a step took {fmt.duration(then_ns)} then"]


def _table_note(view: View) -> str:
    window = view.window
    if window is None:
        return ""
    steps = len(window.report.steps)
    share = f"mean of {steps} steps" if steps > 1 else "one step" if steps else "whole trace"
    return share


def waiting(view: View) -> str:
    """Why there is no window to show."""
    if view.state == "unreadable":
        return "this file could not be read"
    if view.kind == "trace":
        return "reading the trace…"
    if view.died is not None or view.state in ("ended", "failed"):
        return "no window was captured"
    if view.variant:
        return f"waiting for the first window of {view.variant}"
    return "waiting for the worker"


def verdict(view: View) -> VerdictData:
    """The verdict of the last window, in words, with what it rests on."""
    if view.window is None:
        return VerdictData("", waiting(view))
    report = view.window.report
    if report.health.status == "no_gpu_activity":
        found = "; ".join(finding.message for finding in report.health.findings)
        return VerdictData("no GPU activity", found or "the trace holds no GPU events", True)
    reason = "; ".join(report.verdict.because)
    return VerdictData(_VERDICTS[report.verdict.bound], reason, report.verdict.bound == "launch")


def spark(view: View) -> SparkData:
    """The tok/s history."""
    hint = "a trace file has no tok/s history" if view.kind == "trace" else "no measurement yet"
    return SparkData(view.samples, view.choices, hint)


def variants(view: View) -> VariantsData:
    """What the number keys select."""
    heading = "Traces" if view.kind == "trace" else "Variants"
    return VariantsData(heading, view.choices, view.current, "waiting for the worker")


def timeline(view: View, moment: Moment) -> TimelineData:
    """The last step of the last window."""
    window = view.window
    step = window.report.steps[-1] if window and window.report.steps else None
    if window is None or step is None or window.timeline is None:
        hint = "this trace marks no steps" if window is not None else waiting(view)
        return TimelineData(None, "Last step", "", hint)
    span = fmt.duration(window.timeline.length_ns)
    ops = "operators" if on_cpu(view) else "GPU ops"
    heading = f"Last step  {span}, {step.gpu_ops:,} {ops}"
    return TimelineData(window.timeline, heading, window_note(view, moment), "")


def kernels(view: View) -> KernelTable:
    """The top kernels of the last window."""
    heading, noun = ("Top operators", "operator") if on_cpu(view) else ("Top kernels", "kernel")
    window = view.window
    if window is None:
        return KernelTable(heading, "", (), (), "step", waiting(view))
    rows = kernel_rows(window.report)[: len(window.families)]
    per = "step" if window.report.steps else "trace"
    hint = f"no {noun}s in this window"
    return KernelTable(heading, _table_note(view), window.families, rows, per, hint, noun)


def gaps(view: View) -> GapTable:
    """The gap classes of the last window."""
    heading = "Idle gaps"
    if view.window is None:
        return GapTable(heading, "", (), "step", waiting(view))
    per = "step" if view.window.report.steps else "trace"
    rows = gap_rows(view.window.report)
    hint = "no gaps in this window"
    return GapTable(heading, _table_note(view), rows, per, hint, on_cpu(view))


def text(view: View) -> TextData:
    """The tail of the generated text."""
    stats = view.stats
    if view.kind == "trace":
        return TextData("Generated text", "", "", "a trace file holds no text")
    if stats is None:
        return TextData("Generated text", "", "", "no text yet")
    note = f"generation {stats.round} · position {stats.position:,}"
    return TextData("Generated text", note, stats.text, "no tokenizer: there is no text to show")
