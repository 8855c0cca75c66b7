"""Waiting for other GPUs in details: of an op, and of a kernel."""

from collections.abc import Iterator

from decodescope.analyzer.text.formatting import count, duration, percent
from decodescope.analyzer.vocabulary.words import device_words
from decodescope.tui.model.details.line import DetailLine
from decodescope.tui.model.view import Window


def op_waiting_lines(window: Window, row: int) -> Iterator[DetailLine]:
    """How long an op waited for other GPUs and then transferred; nothing for an op that is no
    matched collective."""
    waits, trace = window.lanes.waits, window.analysis.trace
    ops = trace.ops
    place = waits.of_op(row) if waits is not None else None
    if waits is None or place is None:
        return
    transfer_start_ns, last = int(waits.transfer_start_ns[place]), int(waits.last[place])
    members = f"{count(int(waits.members[place]))} GPUs"
    if last >= 0 and last == int(ops.device[row]):
        caused = duration(int(waits.caused_ns[place]))
        yield DetailLine("waited", f"not at all: it entered last; the others of {members} waited "
                         f"{caused} in all", "warn")  # fmt: skip
    else:
        whom = device_words(trace.device_label(last)) if last >= 0 else "several"
        waited = duration(transfer_start_ns - int(ops.start_ns[row]))
        yield DetailLine("waited", f"{waited} for {whom}, which entered last of {members}")
    yield DetailLine("transfer", duration(int(ops.end_ns[row]) - transfer_start_ns))


def kernel_waiting_lines(window: Window, name: str, within: str | None) -> Iterator[DetailLine]:
    """For how much of a kernel's time its launches waited for other GPUs."""
    waits, analysis = window.lanes.waits, window.analysis
    if waits is None or name not in analysis.trace.names:
        return
    ops = analysis.trace.ops
    chosen = ops.name[waits.op] == analysis.trace.names.index(name)
    if within is not None:
        chosen &= analysis.ranges.ops_within(within)[waits.op]
    mine = waits.take(chosen)
    total_ns = int(ops.take(mine.op).length_ns.sum())
    if total_ns:
        waited_ns = int((mine.transfer_start_ns - ops.start_ns[mine.op]).sum())
        share = f"{percent(waited_ns / total_ns)} % of {count(len(mine))} collectives' time"
        yield DetailLine("waited", f"{duration(waited_ns)} for other GPUs, {share}")
