"""Communication of ranks or of the GPUs of one trace: transfer, wait, straggler, collectives."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from decodescope.analyzer.collectives.matching import Group, find_groups
from decodescope.analyzer.collectives.participants import (
    CollectiveOperation,
    Participant,
    bus_factor,
    find_participants,
    message_bytes,
)
from decodescope.analyzer.collectives.waits import (
    Entries,
    OpWaits,
    Waits,
    entries_of,
    find_straggler,
    find_waits,
    op_waits,
    split_communication,
    transfer_starts,
)
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.reports.skew_report import skew_report, steps_by_device
from decodescope.analyzer.schema.communication_report import (
    ClockSource,
    CollectiveReport,
    CommunicationReport,
    RankCommunication,
    SkewReport,
    Straggler,
)
from decodescope.analyzer.timing.timeline import Timeline


@dataclass(frozen=True, slots=True, eq=False)
class MatchedCollectives:
    """The collectives of `participants`; `groups` run the same ones, and `group_waits` has the
    waits of each group."""

    operations: tuple[CollectiveOperation, ...]
    participants: tuple[Participant, ...]
    groups: tuple[Group, ...]
    group_waits: tuple[Waits, ...]

    @property
    def waits(self) -> tuple[Waits, ...]:
        """The waits of the groups with matched collectives."""
        return tuple(waits for waits in self.group_waits if len(waits.transfer_ns))

    @property
    def by_durations(self) -> bool:
        """Whether waits are found from durations."""
        return any(waits.by_durations for waits in self.waits)


def match_collectives(
    operations: Sequence[CollectiveOperation],
    participants: Sequence[Participant],
    common_clock: bool,
) -> MatchedCollectives:
    """Match them. `common_clock` says whether the wall clocks of the participants are one."""
    groups = find_groups(participants, operations, common_clock)
    waits = [find_waits(group, common_clock) for group in groups]
    return MatchedCollectives(tuple(operations), tuple(participants), tuple(groups), tuple(waits))


def communication_report(
    matched: MatchedCollectives,
    ranks: Iterable[int],
    member: Literal["rank", "GPU"],
    skew: SkewReport | None,
) -> CommunicationReport:
    """The communication of each of `ranks`, who waits for whom, and the collectives."""
    participants, waits = matched.participants, matched.waits
    entries = [entries_of(number, waits) for number in range(len(participants))]
    parts = [
        split_communication(participant, start_ns)
        for participant, start_ns in zip(
            participants, transfer_starts(participants, waits), strict=True
        )
    ]
    # The clock of a participant is that of its group with the most collectives.
    clocks_ns: dict[int, int] = {}
    for wait in sorted(waits, key=lambda wait: len(wait.transfer_ns)):
        clocks_ns |= zip(wait.group.members, wait.group.clock_ns.tolist(), strict=True)
    straggler, no_straggler = _straggler(participants, entries, parts)
    rows = []
    for rank in ranks:
        places = [
            place for place, participant in enumerate(participants) if participant.rank == rank
        ]
        split = sum((parts[place] for place in places), Counter[str]())
        late_ns = [np.zeros(0, dtype=np.int64), *(entries[place].late_ns for place in places)]
        rows.append(
            RankCommunication(
                rank=rank,
                communication_ns=split["transfer_ns"] + split["wait_ns"] + split["unsplit_ns"],
                collectives=sum(entries[place].collectives for place in places),
                last_entries=sum(entries[place].last for place in places),
                caused_wait_ns=sum(entries[place].caused_ns for place in places),
                lateness_ns=percentiles(np.concatenate(late_ns)),
                clock_offset_ns=next(
                    (clocks_ns[place] for place in places if place in clocks_ns), None
                ),
                **split,
            )
        )
    return CommunicationReport(
        ranks=tuple(rows),
        member=member,
        clock=_clock_source(matched.by_durations) if waits else None,
        straggler=straggler,
        no_straggler=no_straggler,
        collectives=_collectives(matched.operations, participants, matched.group_waits),
        skew=skew,
    )


def gpu_communication(timeline: Timeline) -> CommunicationReport | None:
    """The communication of each GPU as if it were a rank. None without two that communicate, and
    of merged ranks, where `RanksReport` has it."""
    if timeline.trace.device_labels or (matched := _of_devices(timeline)) is None:
        return None
    trace = timeline.trace
    spans, members = steps_by_device(trace, timeline.steps, matched.participants)
    skew = skew_report(
        spans,
        members,
        matched.groups,
        by_durations=matched.by_durations,
        common_clock=True,
        first_op_ns=trace.base_ns + int(trace.ops.start_ns[0]),
    )
    ranks = [participant.rank for participant in matched.participants]
    return communication_report(matched, ranks, "GPU", skew)


def waits_of(timeline: Timeline) -> OpWaits | None:
    """How long each op waited for other GPUs, also of merged ranks; None without two GPUs that
    communicate. For views that draw time: computed anew by every call."""
    matched = _of_devices(timeline)
    return (
        None if matched is None else op_waits(timeline.trace, matched.participants, matched.waits)
    )


def _of_devices(timeline: Timeline) -> MatchedCollectives | None:
    """The collectives of the trace's devices, each as a rank with its number."""
    operations, participants = find_participants([(0, timeline.trace, timeline.steps)])
    if len(participants) < 2:
        return None
    ranks = [replace(participant, rank=participant.device) for participant in participants]
    return match_collectives(operations, ranks, common_clock=True)


def _clock_source(by_durations: bool) -> ClockSource:
    return "durations" if by_durations else "common"


def _straggler(
    participants: Sequence[Participant],
    entries: Sequence[Entries],
    parts: Sequence[Counter[str]],
) -> tuple[Straggler | None, str]:
    """The straggler, its cost as a share of the median window of the devices; else why none."""
    communication_ns = [
        split["transfer_ns"] + split["wait_ns"] + split["unsplit_ns"] for split in parts
    ]
    typical_ns = int(np.median(communication_ns)) if parts else 0
    number, why_none = find_straggler(entries, typical_ns)
    if number is None:
        return None, why_none
    windows_ns = [int(device.ops.end_ns.max() - device.ops.start_ns[0]) for device in participants]
    window_ns = int(np.median(windows_ns))
    entered = entries[number]
    straggler = Straggler(
        rank=participants[number].rank,
        collectives=entered.collectives,
        last_entries=entered.last,
        even_entries=entered.even,
        caused_wait_ns=entered.caused_ns,
        cost_ns=entered.cost_ns,
        cost_share=entered.cost_ns / window_ns if window_ns else 0.0,
    )
    return straggler, ""


def _collectives(
    operations: Sequence[CollectiveOperation],
    participants: Sequence[Participant],
    waits: Sequence[Waits],
) -> tuple[CollectiveReport, ...]:
    rows = []
    for place, operation in enumerate(operations):
        of_operation = [wait for wait in waits if wait.group.operation == operation]
        matched = {number for wait in of_operation for number in wait.group.members}
        alone = [
            number
            for number, participant in enumerate(participants)
            if number not in matched and place in participant.operation
        ]
        for wait in of_operation:
            rows.append(_collective(operation, place, participants, wait.group.members, wait))
        if alone:
            rows.append(_collective(operation, place, participants, alone, None))
    rows.sort(key=lambda row: (-row.total_ns, row.operation, row.kind, row.ranks))
    return tuple(rows)


def _collective(
    operation: CollectiveOperation,
    place: int,
    participants: Sequence[Participant],
    members: Sequence[int],
    waits: Waits | None,
) -> CollectiveReport:
    users = [participants[number] for number in members]
    lengths_ns = np.concatenate(
        [user.times(np.flatnonzero(user.operation == place)).length_ns for user in users]
    )
    matched = 0 if waits is None else len(waits.transfer_ns)
    message_bytes, bus_bytes_per_s = _bandwidth(operation, participants, waits)
    return CollectiveReport(
        operation=operation.name,
        kind=operation.kind,
        ranks=tuple(sorted({user.rank for user in users})),
        matched=matched,
        unmatched=len(lengths_ns) - matched * len(members),
        total_ns=int(lengths_ns.sum()),
        transfer_ns=None if waits is None else percentiles(waits.transfer_ns),
        wait_ns=None if waits is None else percentiles(waits.wait_ns.ravel()),
        clock=None if waits is None or not matched else _clock_source(waits.by_durations),
        group=operation.group,
        message_bytes=message_bytes,
        bus_bytes_per_s=bus_bytes_per_s,
    )


def _bandwidth(
    operation: CollectiveOperation, participants: Sequence[Participant], waits: Waits | None
) -> tuple[int | None, float | None]:
    """The median size of the matched messages and the median of their bus bandwidth."""
    if waits is None:
        return None, None
    group = waits.group
    payload = participants[group.members[0]].bytes[group.op[0]]
    size = message_bytes(operation.name, payload, len(group.members))
    known = (size > 0) & (waits.transfer_ns > 0)
    factor = bus_factor(operation.name, len(group.members))
    if not known.any() or factor is None:
        return None, None
    rates = size[known] / waits.transfer_ns[known] * 1e9 * factor
    return int(np.median(size[known])), float(np.median(rates))
