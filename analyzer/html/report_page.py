"""One offline HTML page about one or several analysed traces, and what changed between them.

Every figure on it is read from a `Report`, a `Comparison` or a `Diff`; nothing is computed here but
how it is drawn and written.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup
from msgspec.structs import replace

from decodescope.analyzer.html.page import render_page
from decodescope.analyzer.html.svg_rates import rates_svg, ratios_svg
from decodescope.analyzer.html.svg_timeline import steps_svg
from decodescope.analyzer.html.svg_waterfall import Bar, composition_svg, waterfalls_svg
from decodescope.analyzer.html.view import VariantView, view_pages
from decodescope.analyzer.schema.comparison_report import Comparison, Diff, Gate, Pair, VariantRates
from decodescope.analyzer.schema.report import GAP_CLASSES, CaptureInfo, Finding
from decodescope.analyzer.schema.run_report import RunReport

__all__ = ["VariantView", "html_report"]

_SIMILAR = 0.6


@dataclass(frozen=True, slots=True)
class _Changes:
    """What a comparison of runs and a diff of traces have in common on the page."""

    pairs: tuple[Pair, ...]
    variants: tuple[VariantRates, ...]
    runs: tuple[RunReport, ...]
    rounds: int
    findings: tuple[Finding, ...]
    gate: Gate | None
    rates: Markup | None
    ratios: Markup | None


def html_report(
    title: str, views: Sequence[VariantView], comparison: Comparison | Diff | None
) -> str:
    """The whole page as text.

    `views` are shown in their order, each with its own section; where there are several, their
    waterfalls and steps also stand on one scale. The two sides of a diff are called as its views.
    """
    pages = view_pages(views)
    bars: list[Bar] = [(v.name, v.report.waterfall) for v in views if v.report.waterfall]
    steps = [(view.step_name, view.timeline) for view in views if view.timeline is not None]
    lengths = [sum(part.ns for part in parts) for _, parts in bars]
    return render_page(
        title=title,
        views=pages,
        changes=None if comparison is None else _changes(comparison, views),
        models=_models(views, comparison),
        bars=bars,
        parts=_parts(bars),
        waterfalls=waterfalls_svg(bars) if bars else None,
        composition=composition_svg(bars) if not _similar(lengths) else None,
        steps=steps_svg(steps) if len(steps) > 1 else None,
        families=list(dict.fromkeys(name for page in pages for name in page.families)),
        gap_classes=[
            name for name in GAP_CLASSES if any(name in page.gap_classes for page in pages)
        ],
        environment=_environment(comparison),
    )


def _changes(comparison: Comparison | Diff, views: Sequence[VariantView]) -> _Changes:
    if isinstance(comparison, Diff):
        pair = comparison.pair
        if len(views) == 2:
            pair = replace(pair, base=views[0].name, other=views[1].name)
        pairs = (pair,)
        return _Changes(
            pairs, (), (), 0, comparison.findings, comparison.gate, None, ratios_svg(pairs)
        )
    result = comparison.comparison
    return _Changes(
        pairs=result.pairs,
        variants=result.variants,
        runs=comparison.runs,
        rounds=result.rounds,
        findings=result.findings,
        gate=result.gate,
        rates=rates_svg(result.variants) if result.variants else None,
        ratios=ratios_svg(result.pairs),
    )


def _models(
    views: Sequence[VariantView], comparison: Comparison | Diff | None
) -> list[dict[str, str | int]]:
    """What was decoded, each once: nobody may take random weights for trained ones."""
    runs = comparison.runs if isinstance(comparison, Comparison) else ()
    sources: list[RunReport | CaptureInfo] = [*runs]
    sources += [view.report.capture for view in views if view.report.capture is not None]
    found: list[dict[str, str | int]] = []
    for source in sources:
        facts: dict[str, str | int] = {
            "model": source.model,
            "weights": source.weights,
            "dtype": source.dtype,
            "batch": source.batch,
            "context": source.context,
            "device": source.device,
            "device_name": source.device_name,
        }
        if facts not in found:
            found.append(facts)
    return found


def _parts(bars: Sequence[Bar]) -> list[str]:
    """The parts that any bar has, in the order of the longest list."""
    order = max((parts for _, parts in bars), key=len, default=())
    used = {part.part for _, parts in bars for part in parts if part.ns}
    names = [part.part for part in order]
    return [name for name in [*names, *sorted(used - set(names))] if name in used]


def _similar(lengths: Sequence[int]) -> bool:
    """Whether all of them can be told apart on the scale of the longest."""
    return not lengths or min(lengths) >= _SIMILAR * max(lengths)


def _environment(comparison: Comparison | Diff | None) -> dict[str, list[str]]:
    """Each fact of the runs' environments with all values it had."""
    facts: dict[str, list[str]] = {}
    for run in comparison.runs if isinstance(comparison, Comparison) else ():
        for key, value in run.environment.items():
            values = facts.setdefault(key, [])
            if value is not None and f"{value}" not in values:
                values.append(f"{value}")
    return facts
