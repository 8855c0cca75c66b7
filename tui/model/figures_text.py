"""The figures as lines of text, for the clipboard."""

from decodescope.tui.model import present
from decodescope.tui.model.present import Moment
from decodescope.tui.model.session import View


def figures_text(view: View, moment: Moment) -> str:
    """What the screen shows, as aligned lines: state, figures, verdict, gaps and kernels."""
    title = present.title(view, moment)
    lines = ["decodescope  " + " · ".join([*(b.text for b in title.badges), *title.facts])]
    figures = present.figures(view, moment)
    lines += [f"{figure.short:<12} {figure.text}" for figure in (*figures.main, *figures.side)]
    verdict = present.verdict(view)
    lines.append(f"verdict      {verdict.label} {verdict.reason}".rstrip())
    gaps = present.gaps(view)
    if gaps.rows:
        lines.append(f"idle gaps ({gaps.note}): gaps and µs per {gaps.per}, share of the window")
        lines += [
            f"  {gap.gap_class:<16} {gap.count:>9.1f} {gap.ns / 1e3:>12.1f} "
            f"{gap.window_share:>7.1%}"
            for gap in gaps.rows
        ]
    kernels = present.kernels(view)
    if kernels.rows:
        lines.append(f"{kernels.title.lower()} ({kernels.note}): count and µs per {kernels.per}, "
                     "share of kernel time")  # fmt: skip
        lines += [
            f"  {row.count:>9.1f} {row.ns / 1e3:>12.1f} {row.share:>7.1%}  {row.name}"
            for row in kernels.rows
        ]
    return "\n".join(lines) + "\n"
