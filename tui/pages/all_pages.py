"""The pages in the order of their keys."""

from decodescope.tui.pages import kernels, live

PAGES = (live.PAGE, kernels.PAGE)
