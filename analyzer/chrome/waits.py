"""When the collectives of a device waited for other devices, in a Chrome trace."""

from collections.abc import Iterator

import numpy as np

from decodescope.analyzer.chrome.events import EventText, rows_of
from decodescope.analyzer.chrome.tracks import first_fit
from decodescope.analyzer.collectives.op_waits import OpWaits
from decodescope.analyzer.trace import Trace
from decodescope.analyzer.vocabulary.words import device_words

_CATEGORY = "collective_wait"


def wait_slices(
    trace: Trace, waits: OpWaits, text: EventText, pid: int, first_track: int
) -> Iterator[str]:
    """A slice for the part of each op of one device in which it waited, with the device that it
    waited for. Those that overlap get tracks of their own, from `first_track` on."""
    waits = waits.take(waits.transfer_start_ns > trace.ops.start_ns[waits.op])
    start_ns, end_ns = trace.ops.start_ns[waits.op], waits.transfer_start_ns
    order = np.argsort(start_ns, kind="stable")
    tracks = first_track + first_fit(start_ns[order], end_ns[order], may_nest=False)
    for track in np.unique(tracks).tolist():
        yield text.thread(pid, track, "wait for other GPUs")
    columns = (
        start_ns,
        waits.transfer_start_ns,
        waits.last,
        waits.members,
        trace.ops.name[waits.op],
    )
    for track, (start, end, last, members, name) in zip(
        tracks.tolist(), rows_of(columns, order), strict=True
    ):
        whom = device_words(trace.device_label(last)) if last >= 0 else "several"
        args: dict[str, object] = {"collective": trace.names[name], "GPUs": members}
        yield text.slice(_CATEGORY, text.quoted(f"waits for {whom}"), pid, track, start, end, args)
