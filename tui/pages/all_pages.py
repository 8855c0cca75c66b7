"""The pages in the order of their keys."""

from decodescope.tui.pages import (
    comparing,
    files,
    gaps,
    kernels,
    limit,
    live,
    log,
    ranges,
    timeline,
)

PAGES = (
    live.PAGE,
    timeline.PAGE,
    kernels.PAGE,
    gaps.PAGE,
    ranges.PAGE,
    limit.PAGE,
    comparing.PAGE,
    files.PAGE,
    log.PAGE,
)
