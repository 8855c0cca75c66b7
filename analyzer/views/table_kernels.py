"""Table of kernels, with their rooflines where these are known."""

from rich.table import Table

from decodescope.analyzer.formatting import UNKNOWN, count, duration, percent, significant
from decodescope.analyzer.schema.report import KernelReport, Report, Roofline
from decodescope.analyzer.views.names import shorten_kernel
from decodescope.analyzer.views.table_parts import MEDIUM_WIDTH, ROOMY_WIDTH, plain_table, with_rest


def kernels_table(report: Report, width: int, rows: int) -> Table:
    """The first `rows` kernels. Narrow tables leave out the mean for a roofline, roomy ones add
    how many calls were short and which peak limits the kernel."""
    shown = report.kernels[:rows]
    known = any(kernel.roofline is not None for kernel in shown)
    with_mean = width >= MEDIUM_WIDTH or not known
    roomy = width >= ROOMY_WIDTH
    with_short = roomy and any(kernel.short_calls for kernel in shown)
    columns = ["name", "calls", *(["short"] if with_short else []), "total"]
    columns += [*(["mean"] if with_mean else []), "share"]
    columns += [*(["GB/s", "of limit"] if known else []), *(["limit"] if known and roomy else [])]
    table = plain_table(*columns)
    taken = 30 + 10 * with_mean + 9 * with_short + (17 + 9 * roomy) * known
    cells = max(width - taken, 13)
    for kernel in shown:
        table.add_row(
            *(shorten_kernel(kernel.name, cells), count(kernel.count)),
            *([count(kernel.short_calls)] if with_short else []),
            duration(kernel.total_ns),
            *([duration(kernel.mean_ns)] if with_mean else []),
            f"{percent(kernel.share)} %",
            *(_roofline(kernel, roomy) if known else []),
        )
    return with_rest(table, len(report.kernels), len(shown), "kernels")


def _roofline(kernel: KernelReport, roomy: bool) -> list[str]:
    found: Roofline | None = kernel.roofline
    if found is None:
        return [""] * (3 if roomy else 2)
    share = UNKNOWN if found.share_of_limit is None else f"{percent(found.share_of_limit)} %"
    limit = [found.limit or UNKNOWN] if roomy else []
    return [significant(found.bytes_per_s / 1e9), share, *limit]
