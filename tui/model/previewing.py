"""What a panel shows while a run starts: a recording of the same, until the run has reported.

Only panels see a preview. Exports, selections, the history and the log read the view itself.
"""

from dataclasses import replace

from decodescope.tui.model.view import Moment, Part, Preview, View

_OVER = ("failed", "ended", "ending")


def stand_in(view: View, moment: Moment, part: Part | None) -> tuple[View, Moment]:
    """The view, and its moment, for a panel that draws `part` of a run; None draws other things."""
    preview = view.preview
    if preview is None or part not in preview.parts:
        return view, moment
    return preview.view, preview.moment


def remaining(view: View) -> Preview | None:
    """What of the preview the run has not reported; None if nothing is left, the run is over, or it
    decodes something else."""
    preview = view.preview
    if preview is None or view.died is not None or view.fatal or view.state in _OVER:
        return None
    recorded = preview.view
    if view.variant not in (None, recorded.variant) or not _same_run(view, recorded):
        return None
    parts = preview.parts
    if view.stats is not None:
        parts -= {"figures"}
    if view.window is not None:
        parts -= {"window"}
    return replace(preview, parts=parts) if parts else None


def _same_run(view: View, recorded: View) -> bool:
    """Whether both greetings, if there are any, name the same model and workload, on a GPU."""
    if view.hello is None or recorded.hello is None:
        return True
    names = ("model", "device", "dtype", "batch")
    return all(getattr(view.hello, name) == getattr(recorded.hello, name) for name in names)
