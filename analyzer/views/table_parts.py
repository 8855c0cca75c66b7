"""What the tables for a terminal share: columns, sections, the verdict and the waterfall."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.schema.kernel_report import Percentiles, StepTimes
from decodescope.analyzer.schema.report import GAP_CLASSES, Verdict, WaterfallPart
from decodescope.analyzer.text.formatting import duration, signed_duration
from decodescope.analyzer.vocabulary.words import bound_words, part_words

MIN_WIDTH, MEDIUM_WIDTH = 60, 80
_BAR_CELLS = 32

Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Fitted:
    """Renders what `parts` yields for the width of the terminal, but at least `MIN_WIDTH`."""

    parts: Callable[[int], RenderResult]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self.parts(max(options.max_width, MIN_WIDTH))


def plain_table() -> Table:
    """A table without lines or columns."""
    return Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")


def section(title: str, *content: RenderableType) -> Iterator[RenderableType]:
    """A blank line, the title, and the content below it."""
    yield ""
    yield Text(title, style="bold")
    yield from content


def times_text(times: Percentiles | StepTimes, names: Iterable[str]) -> str:
    """The named figures of a distribution, as "p50 1.00 ms  p99 2.00 ms"."""
    return "  ".join(f"{name} {duration(getattr(times, name))}" for name in names)


def verdict_text(verdict: Verdict) -> Text:
    """The verdict in bold, its reasons and what to do next on lines of their own."""
    lines = [*verdict.because, *(f"next: {advice}" for advice in verdict.next)]
    text = Text(bound_words(verdict.bound), style="bold")
    return text.append("".join(f"\n  {line}" for line in lines), style="not bold")


def waterfall_section(
    parts: Sequence[WaterfallPart], width: int = MEDIUM_WIDTH
) -> Iterator[RenderableType]:
    """The parts of one step with their shares and bars, without gap classes that did not occur;
    nothing without parts. Bars leave room for `width`."""
    if not parts:
        return
    bar_cells = max(min(_BAR_CELLS, width - 48), 8)
    total = sum(part.ns for part in parts)
    table = Table(box=box.SIMPLE, show_header=False, pad_edge=False, show_footer=True)
    table.add_column(footer="step")
    table.add_column(justify="right", footer=duration(total))
    table.add_column(justify="right", footer="")
    table.add_column(footer="")
    for part in parts:
        if part.ns == 0 and part.part in GAP_CLASSES:
            continue
        share = part.ns / total if total else 0.0
        table.add_row(
            part_words(part.part),
            signed_duration(part.ns),
            f"{share * 100:.1f} %",
            "█" * round(min(max(share, 0.0), 1.0) * bar_cells),
        )
    yield from section("Where one profiled step goes", table)
