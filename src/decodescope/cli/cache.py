"""`cache`: the columns of large traces, which later commands read in place of the trace."""

from typing import TYPE_CHECKING

import rich_click as click

from decodescope.cli.options import json_option
from decodescope.cli.output import print_result, say

if TYPE_CHECKING:
    from rich.console import RenderableType

    from decodescope.analyzer.schema.cache_report import CacheReport


@click.command()
@click.argument("action", metavar="[clear]", type=click.Choice(["clear"]), required=False)
@json_option
def cache(action: str | None, as_json: bool) -> None:
    """Print which large traces are kept as columns, where, and how large they are, or clear them.

    A command reads them in place of a trace that has not changed. Those used last stay.
    """
    from decodescope.analyzer.readers.trace_cache import TraceCache

    kept = TraceCache()
    if action == "clear":
        kept.clear()
        say(f"cleared {kept.folder}")
    else:
        print_result(kept.report(), _summary, as_json)


def _summary(report: "CacheReport") -> "RenderableType":
    from decodescope.analyzer.tables.cache_table import cache_table
    from decodescope.analyzer.text.formatting import bytes_size, counted
    from decodescope.analyzer.views.comparison_table import Section, Summary, summary_table

    sizes = f"{bytes_size(report.size_bytes)} of at most {bytes_size(report.most_bytes)}"
    return summary_table(
        Summary(
            title=f"{counted(len(report.traces), 'trace')}, {sizes}",
            weights_note="",
            facts=(report.folder,),
            sections=(Section("Traces", cache_table(report)),) if report.traces else (),
            findings=(),
        )
    )
