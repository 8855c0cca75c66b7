"""What the page says about one trace: its report, and the charts made from it."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from decodescope.analyzer.html.svg_histogram import Buckets, histogram_svg, shared_bounds
from decodescope.analyzer.html.svg_queue import queue_svg
from decodescope.analyzer.html.svg_timeline import excerpt_svg, step_svg
from decodescope.analyzer.schema.report import GAP_CLASSES, DeviceReport, LaunchReport, Report
from decodescope.analyzer.timing.op_families import FAMILIES, op_families
from decodescope.analyzer.timing.step_timeline import StepTimeline
from decodescope.analyzer.views.names import RangeRow, range_rows

Captioned = tuple[str, Markup]
_LAUNCH_CHART_PX = 362.0


@dataclass(frozen=True, slots=True)
class VariantView:
    """One trace to show: its name on the page, its report, and one step of it to draw."""

    name: str
    report: Report
    timeline: StepTimeline | None

    @property
    def step_name(self) -> str:
        """What the drawn step is called: one of several devices is named."""
        if self.timeline is None or len(self.report.devices) < 2:
            return self.name
        return f"{self.name}, device {self.timeline.device}"


@dataclass(frozen=True, slots=True)
class ViewPage:
    """A view with its place on the page and its charts; a chart without data is missing."""

    anchor: str
    name: str
    report: Report
    ops: str
    step_name: str
    step: Markup | None
    excerpt: Markup | None
    families: tuple[str, ...]
    gap_charts: tuple[Captioned, ...]
    launch_charts: tuple[Captioned, ...]
    queue_chart: Markup | None
    ranges: list[RangeRow]

    @property
    def gap_classes(self) -> list[str]:
        """The gap classes that occur on any device."""
        return [
            name
            for name in GAP_CLASSES
            if any(name in device.gaps and device.gaps[name].count for device in self.devices)
        ]

    @property
    def several_streams(self) -> bool:
        """Whether any device ran more than one stream."""
        return any(len(device.streams) > 1 for device in self.devices)

    @property
    def devices(self) -> tuple[DeviceReport, ...]:
        return self.report.devices


def view_pages(views: Sequence[VariantView]) -> list[ViewPage]:
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


def _view_page(number: int, view: VariantView, bounds: Sequence[int]) -> ViewPage:
    step, report = view.timeline, view.report
    queue = report.launches.queue_depth
    on_cpu = any(device.device == "cpu" for device in report.devices)
    families = op_families(step) if step is not None else ()
    return ViewPage(
        anchor=f"view-{number}",
        name=view.name,
        report=report,
        ops="operators" if on_cpu else "GPU ops",
        step_name=view.step_name,
        step=step_svg(view.step_name, step) if step is not None else None,
        excerpt=excerpt_svg(view.step_name, step) if step is not None else None,
        families=tuple(FAMILIES[index] for index in sorted({int(found) for found in families})),
        gap_charts=tuple(
            (_device_caption(view, device), chart)
            for device in report.devices
            if (chart := _gap_chart(view.name, device, bounds)) is not None
        ),
        launch_charts=_launch_charts(view.name, report.launches),
        queue_chart=queue_svg(view.name, queue) if queue is not None else None,
        ranges=range_rows(report.ranges),
    )


def _device_caption(view: VariantView, device: DeviceReport) -> str:
    several = len(view.report.devices) > 1
    return f"{view.name}, device {device.device}" if several else view.name


def _gap_chart(name: str, device: DeviceReport, bounds: Sequence[int]) -> Markup | None:
    series: dict[str, Buckets] = {
        f"g-{kind}": total.histogram for kind, total in device.gaps.items() if total.histogram
    }
    if not series:
        return None
    return histogram_svg(f"Gaps of {name}, device {device.device}, by length", series, bounds)


def _launch_charts(name: str, launches: LaunchReport) -> tuple[Captioned, ...]:
    found = (
        ("call time", launches.api_ns),
        ("queue time", launches.queue_ns),
        ("call to start", launches.launch_latency_ns),
    )
    return tuple(
        (
            what,
            histogram_svg(
                f"{what} of {name}",
                {"h-launches": times.histogram},
                shared_bounds([times.histogram]),
                _LAUNCH_CHART_PX,
            ),
        )
        for what, times in found
        if times is not None and times.histogram
    )
