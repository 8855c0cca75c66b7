"""One offline HTML page about one or several analysed traces, and what changed between them:
chooses the charts and the text next to them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from decodescope.analyzer.comparing.sides import sides_of
from decodescope.analyzer.html.page import render_page
from decodescope.analyzer.html.svg_step_time import Captioned, histogram_svg
from decodescope.analyzer.html.svg_timeline import steps_svg
from decodescope.analyzer.html.svg_variants import rates_svg, standings_svg
from decodescope.analyzer.names.rules import FAMILIES
from decodescope.analyzer.reports.distributions import Buckets, shared_bounds
from decodescope.analyzer.schema.comparison_report import Comparison, ComparisonResult, Diff
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import GAP_CLASSES, CaptureInfo, Report
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.analyzer.tracks.build import StepTracks
from decodescope.analyzer.views.comparison_table import answer_lines

# Shorter bars than this share of the longest are not visible on its scale.
_SIMILAR = 0.6
_MODEL_FACTS = ("model", "weights", "dtype", "batch", "context", "device", "device_name")


@dataclass(frozen=True, slots=True)
class VariantView:
    """One trace to show: its name on the page, its report, and one step of it to draw."""

    name: str
    report: Report
    tracks: StepTracks | None

    @property
    def step_name(self) -> str:
        if self.tracks is None or len(self.report.devices) < 2:
            return self.name
        return f"{self.name}, device {self.tracks.device}"

    @property
    def several_streams(self) -> bool:
        return any(len(device.streams) > 1 for device in self.report.devices)


def html_report(
    title: str,
    views: Sequence[VariantView],
    comparison: Comparison | Diff | None,
    ranks: RanksReport | None = None,
) -> str:
    """The whole page as text: `views` in their order, each with its own section; the bars and steps
    of several are also drawn on one scale. The two sides of a diff are named after its views.
    `ranks` adds who waits for whom, if any rank communicates."""
    answers = {view.name: view.report.answer for view in views if view.report.answer.parts}
    lengths = [answer.whole_ns for answer in answers.values()]
    steps = [(view.step_name, view.tracks) for view in views if view.tracks is not None]
    changes = _changes(comparison, views)
    devices = [device for view in views for device in view.report.devices]
    runs = comparison.runs if isinstance(comparison, Comparison) else ()
    return render_page(
        title=title,
        views=views,
        reports={view.name: view.report for view in views},
        ranks=ranks if ranks is not None and ranks.communication.collectives else None,
        changes=changes,
        answer_lines=list(answer_lines(comparison)) if isinstance(comparison, Diff) else [],
        rates=rates_svg(changes.variants) if changes else None,
        standings=standings_svg(changes.standings, changes.variants) if changes else None,
        sides=sides_of(comparison) if isinstance(comparison, Comparison) else (),
        models=_models(views, runs),
        answers=answers,
        part_names=list(
            dict.fromkeys(part.part for each in answers.values() for part in each.parts if part.ns)
        ),
        similar=not lengths or min(lengths) >= _SIMILAR * max(lengths),
        steps=steps_svg(steps) if len(steps) > 1 else None,
        families=list(dict.fromkeys(name for view in views for name in _families(view))),
        gap_classes=[
            name
            for name in GAP_CLASSES
            if any(name in device.gaps and device.gaps[name].count for device in devices)
        ],
        gap_charts=_gap_charts(views),
        environment=_environment(runs),
    )


def _families(view: VariantView) -> list[str]:
    kinds = set(view.tracks.ops.kind.tolist()) if view.tracks is not None else ()
    return [FAMILIES[kind] for kind in sorted(kinds)]


def _gap_charts(views: Sequence[VariantView]) -> list[Captioned]:
    """The gaps of each device by length, on one axis."""
    devices = [(view, device) for view in views for device in view.report.devices]
    bounds = shared_bounds(
        [total.histogram for _, device in devices for total in device.gaps.values()]
    )
    charts = []
    for view, device in devices:
        series: Mapping[str, Buckets] = {
            f"g-{kind}": total.histogram for kind, total in device.gaps.items() if total.histogram
        }
        if series:
            several = len(view.report.devices) > 1
            caption = f"{view.name}, device {device.device}" if several else view.name
            title = f"Gaps of {view.name}, device {device.device}, by length"
            charts.append((caption, histogram_svg(title, series, bounds)))
    return charts


def _changes(
    comparison: Comparison | Diff | None, views: Sequence[VariantView]
) -> ComparisonResult | None:
    """The result of a comparison; a diff becomes one without rounds."""
    if not isinstance(comparison, Diff):
        return comparison.comparison if comparison else None
    pair = replace(comparison.pair, step=comparison.answer)
    if len(views) == 2:
        pair = replace(pair, base=views[0].name, other=views[1].name)
    return ComparisonResult(0, (), (pair,), comparison.findings)


def _models(views: Sequence[VariantView], runs: Sequence[RunReport]) -> list[dict[str, object]]:
    """Each decoded model once; random weights must not pass for trained ones."""
    sources: list[RunReport | CaptureInfo] = [*runs]
    sources += [view.report.capture for view in views if view.report.capture is not None]
    models: list[dict[str, object]] = []
    for source in sources:
        facts = {name: getattr(source, name) for name in _MODEL_FACTS}
        if facts not in models:
            models.append(facts)
    return models


def _environment(runs: Sequence[RunReport]) -> dict[str, list[str]]:
    """Each fact of the runs' environments with all values it had."""
    facts: dict[str, list[str]] = {}
    for run in runs:
        for key, value in run.environment.items():
            values = facts.setdefault(key, [])
            if value is not None and f"{value}" not in values:
                values.append(f"{value}")
    return facts
