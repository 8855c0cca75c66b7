"""One offline HTML page about one or several analysed traces, and what changed between them.

Every figure on it is read from a `Report`, a `Comparison` or a `Diff`; this module only chooses the
charts and the text next to them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from markupsafe import Markup
from msgspec.structs import replace

from decodescope.analyzer.comparing.sides import sides_of
from decodescope.analyzer.html.page import render_page
from decodescope.analyzer.html.svg_step_time import (
    Bar,
    composition_svg,
    histogram_svg,
    queue_svg,
    roles_svg,
    waterfalls_svg,
)
from decodescope.analyzer.html.svg_timeline import excerpt_svg, step_svg, steps_svg
from decodescope.analyzer.html.svg_variants import rates_svg, ratios_svg, standings_svg
from decodescope.analyzer.names.kinds import FAMILIES
from decodescope.analyzer.reports.distributions import Buckets, shared_bounds
from decodescope.analyzer.schema.comparison_report import (
    Comparison,
    ComparisonResult,
    Diff,
    VariantRates,
)
from decodescope.analyzer.schema.kernel_report import LaunchReport
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import GAP_CLASSES, CaptureInfo, DeviceReport, Report
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.analyzer.tables.sides_table import (
    accuracy_notes,
    rates_and_accuracy_table,
    standings_table,
)
from decodescope.analyzer.tables.waterfall_table import part_names
from decodescope.analyzer.tracks.step_tracks import StepTracks
from decodescope.analyzer.vocabulary.words import ops_word

_SIMILAR = 0.6
_LAUNCH_CHART_PX = 362.0
_MODEL_FACTS = ("model", "weights", "dtype", "batch", "context", "device", "device_name")

Captioned = tuple[str, Markup]


@dataclass(frozen=True, slots=True)
class VariantView:
    """One trace to show: its name on the page, its report, and one step of it to draw."""

    name: str
    report: Report
    tracks: StepTracks | None

    @property
    def step_name(self) -> str:
        """The name of the drawn step; with several devices it includes the device."""
        if self.tracks is None or len(self.report.devices) < 2:
            return self.name
        return f"{self.name}, device {self.tracks.device}"


@dataclass(frozen=True, slots=True)
class _ViewPage(VariantView):
    """A view with its place on the page and its charts; a chart without data is None."""

    anchor: str
    ops: str
    step: Markup | None
    excerpt: Markup | None
    families: tuple[str, ...]
    gap_charts: tuple[Captioned, ...]
    launch_charts: tuple[Captioned, ...]
    queue_chart: Markup | None
    roles_chart: Markup | None

    @property
    def gap_classes(self) -> list[str]:
        """The gap classes that occur on any device."""
        gaps = [device.gaps for device in self.report.devices]
        return [name for name in GAP_CLASSES if any(name in by and by[name].count for by in gaps)]

    @property
    def several_streams(self) -> bool:
        """Whether any device ran more than one stream."""
        return any(len(device.streams) > 1 for device in self.report.devices)


def html_report(
    title: str,
    views: Sequence[VariantView],
    comparison: Comparison | Diff | None,
    ranks: RanksReport | None = None,
) -> str:
    """The whole page as text.

    `views` are shown in their order, each with its own section. The waterfalls and steps of several
    views are also drawn on one scale. The two sides of a diff are named after its views.
    `ranks` adds who waits for whom, if any rank communicates.
    """
    pages = _view_pages(views)
    bars: list[Bar] = [(v.name, v.report.waterfall) for v in views if v.report.waterfall]
    steps = [(view.step_name, view.tracks) for view in views if view.tracks is not None]
    changes = _changes(comparison, views)
    sides = sides_of(comparison) if isinstance(comparison, Comparison) else ()
    runs = comparison.runs if isinstance(comparison, Comparison) else ()
    return render_page(
        title=title,
        views=pages,
        reports={view.name: view.report for view in views},
        ranks=ranks if ranks is not None and ranks.communication.collectives else None,
        changes=changes,
        runs=runs,
        rates=_rates(changes.variants) if changes else None,
        ratios=ratios_svg(changes.pairs) if changes else None,
        standings=standings_svg(changes.standings, changes.variants) if changes else None,
        rates_table=rates_and_accuracy_table(sides),
        standings_table=standings_table(sides, changes.standings if changes else ()),
        accuracy_notes=accuracy_notes(sides),
        models=_models(views, runs),
        waterfall_parts=part_names(dict(bars)),
        bars=dict(bars),
        waterfalls=waterfalls_svg(bars) if bars else None,
        composition=None if _similar(bars) else composition_svg(bars),
        steps=steps_svg(steps) if len(steps) > 1 else None,
        families=list(dict.fromkeys(name for page in pages for name in page.families)),
        gap_classes=[
            name for name in GAP_CLASSES if any(name in page.gap_classes for page in pages)
        ],
        environment=_environment(runs),
    )


def _view_pages(views: Sequence[VariantView]) -> list[_ViewPage]:
    """The views in their order; their gap histograms share one axis."""
    bounds = shared_bounds(
        [
            total.histogram
            for view in views
            for device in view.report.devices
            for total in device.gaps.values()
        ]
    )
    return [_view_page(number, view, bounds) for number, view in enumerate(views)]


def _view_page(number: int, view: VariantView, bounds: Sequence[int]) -> _ViewPage:
    step, report = view.tracks, view.report
    queue = report.launches.queue_depth
    families = step.ops.kind.tolist() if step is not None else ()
    several = len(report.devices) > 1
    return _ViewPage(
        *(view.name, report, step),
        anchor=f"view-{number}",
        ops=ops_word(report),
        step=step_svg(view.step_name, step) if step is not None else None,
        excerpt=excerpt_svg(view.step_name, step) if step is not None else None,
        families=tuple(FAMILIES[index] for index in sorted(set(families))),
        gap_charts=tuple(
            (f"{view.name}, device {device.device}" if several else view.name, chart)
            for device in report.devices
            if (chart := _gap_chart(view.name, device, bounds)) is not None
        ),
        launch_charts=_launch_charts(view.name, report.launches),
        queue_chart=queue_svg(view.name, queue) if queue is not None else None,
        roles_chart=roles_svg(view.name, report.roles),
    )


def _gap_chart(name: str, device: DeviceReport, bounds: Sequence[int]) -> Markup | None:
    series: Mapping[str, Buckets] = {
        f"g-{kind}": total.histogram for kind, total in device.gaps.items() if total.histogram
    }
    title = f"Gaps of {name}, device {device.device}, by length"
    return histogram_svg(title, series, bounds) if series else None


def _launch_charts(name: str, launches: LaunchReport) -> tuple[Captioned, ...]:
    charts = {
        "call time": launches.api_ns,
        "queue time": launches.queue_ns,
        "call to start": launches.launch_latency_ns,
    }
    histograms = {
        what: times.histogram for what, times in charts.items() if times and times.histogram
    }
    return tuple(
        (
            what,
            histogram_svg(
                f"{what} of {name}",
                {"h-launches": buckets},
                shared_bounds([buckets]),
                _LAUNCH_CHART_PX,
            ),
        )
        for what, buckets in histograms.items()
    )


def _changes(
    comparison: Comparison | Diff | None, views: Sequence[VariantView]
) -> ComparisonResult | None:
    """The result of a comparison; a diff becomes one without rounds."""
    if not isinstance(comparison, Diff):
        return comparison.comparison if comparison else None
    pair = comparison.pair
    if len(views) == 2:
        pair = replace(pair, base=views[0].name, other=views[1].name)
    return ComparisonResult(0, (), (pair,), comparison.findings, comparison.gate)


def _rates(variants: Sequence[VariantRates]) -> Markup | None:
    timed = [variant for variant in variants if variant.mean is not None]
    return rates_svg(timed) if timed else None


def _models(views: Sequence[VariantView], runs: Sequence[RunReport]) -> list[dict[str, object]]:
    """Each decoded model once; random weights must not pass for trained ones."""
    sources: list[RunReport | CaptureInfo] = [*runs]
    sources += [view.report.capture for view in views if view.report.capture is not None]
    found: list[dict[str, object]] = []
    for source in sources:
        facts = {name: getattr(source, name) for name in _MODEL_FACTS}
        if facts not in found:
            found.append(facts)
    return found


def _similar(bars: Sequence[Bar]) -> bool:
    """Whether the parts of every bar are visible on the scale of the longest."""
    lengths = [sum(part.ns for part in parts) for _, parts in bars]
    return not lengths or min(lengths) >= _SIMILAR * max(lengths)


def _environment(runs: Sequence[RunReport]) -> dict[str, list[str]]:
    """Each fact of the runs' environments with all values it had."""
    facts: dict[str, list[str]] = {}
    for run in runs:
        for key, value in run.environment.items():
            values = facts.setdefault(key, [])
            if value is not None and f"{value}" not in values:
                values.append(f"{value}")
    return facts
