"""Events of Proton's Chrome traces (`proton.start(data="trace")`) as Kineto would write them.

Source: Triton's Proton (`csrc/lib/Data/Dump`, earlier `csrc/lib/Data/TraceData.cpp`). Kernels name
no device and no stream: their thread is 200,000 + the number of the stream, from some version on +
1,000,000 for each device, or the stream alone in files with a document for each stream. A scope of
the host is a range; one of a graph's replay, whose thread is 100,000 + the stream, says when its
kernels ran, which they say themselves.
"""

from decodescope.analyzer.readers.kineto.event import Event, EventArgs

_GRAPH_LANES, _GPU_LANES = 100_000, 200_000
_LANES_OF_DEVICE = 1_000_000
_MOST_DIGITS = 18


def as_kineto(events: list[Event]) -> list[Event]:
    """The same events with Kineto's categories, devices and streams."""
    for event in events:
        if event.cat == "kernel" and (event.args is None or event.args.device is None):
            lane = _lane(event)
            device, stream = divmod(lane - _GPU_LANES, _LANES_OF_DEVICE)
            if lane < _GPU_LANES:
                device, stream = 0, lane
            event.args = EventArgs(device=device, stream=stream)
        elif event.cat in ("scope", "metric"):
            of_graph = _lane(event) >= _GRAPH_LANES
            event.cat = "gpu_user_annotation" if of_graph else "user_annotation"
    return events


def _lane(event: Event) -> int:
    """The thread of an event; numbers in broken files come as text."""
    text = str(event.tid)
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else 0
