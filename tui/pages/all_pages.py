"""The pages in the order of their keys."""

from decodescope.tui.pages import comparing, files, kernels, live, log, timeline

PAGES = (live.PAGE, timeline.PAGE, kernels.PAGE, comparing.PAGE, files.PAGE, log.PAGE)
