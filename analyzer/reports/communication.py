"""Communication of ranks or of the GPUs of one trace: transfer, wait, straggler, collectives."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
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
from decodescope.analyzer.collectives.skew import Skew, find_skew, steps_by_device
from decodescope.analyzer.collectives.waits import (
    Entries,
    OpWaits,
    SplitCommunication,
    Waits,
    entries,
    find_straggler,
    find_waits,
    op_waits,
    split_communication,
    transfer_starts,
)
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.schema.communication_report import (
    ClockSource,
    CollectiveReport,
    CommunicationReport,
    RankCommunication,
    SkewReport,
    StepSkew,
    Straggler,
)
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Int64s

MAX_STEPS = 20


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
    all_entries = entries(len(participants), waits)
    starts = transfer_starts(participants, waits)
    parts = [
        split_communication(participant, start_ns)
        for participant, start_ns in zip(participants, starts, strict=True)
    ]
    clocks_ns = _clocks(len(participants), waits)
    straggler, no_straggler = _straggler(participants, all_entries, parts)
    places = {
        rank: [place for place, one in enumerate(participants) if one.rank == rank]
        for rank in ranks
    }
    return CommunicationReport(
        ranks=tuple(
            _rank_communication(
                rank,
                [parts[place] for place in of_rank],
                [all_entries[place] for place in of_rank],
                [clocks_ns[place] for place in of_rank],
            )
            for rank, of_rank in places.items()
        ),
        member=member,
        clock=_clock_source(matched.by_durations) if waits else None,
        straggler=straggler,
        no_straggler=no_straggler,
        collectives=_collectives(matched.operations, participants, matched.group_waits),
        skew=skew,
    )


def _rank_communication(
    rank: int,
    parts: Sequence[SplitCommunication],
    rank_entries: Sequence[Entries],
    clocks_ns: Sequence[int | None],
) -> RankCommunication:
    """Sums over the devices of a rank."""
    sums = {
        field.name: sum(getattr(part, field.name) for part in parts)
        for field in fields(SplitCommunication)
    }
    late_ns = [entries.late_ns for entries in rank_entries]
    return RankCommunication(
        rank=rank,
        communication_ns=sums["transfer_ns"] + sums["wait_ns"] + sums["unsplit_ns"],
        collectives=sum(entries.collectives for entries in rank_entries),
        last_entries=sum(entries.last for entries in rank_entries),
        caused_wait_ns=sum(entries.caused_ns for entries in rank_entries),
        lateness_ns=percentiles(np.concatenate([*late_ns, np.zeros(0, dtype=np.int64)])),
        clock_offset_ns=next((clock_ns for clock_ns in clocks_ns if clock_ns is not None), None),
        **sums,
    )


def gpu_communication(timeline: Timeline) -> CommunicationReport | None:
    """The communication of each GPU as if it were a rank. None without two that communicate, and
    of merged ranks, where `RanksReport` has it."""
    if timeline.trace.device_labels or (matched := _of_devices(timeline)) is None:
        return None
    trace = timeline.trace
    spans, members = steps_by_device(trace, timeline.steps, matched.participants)
    skew = find_skew(spans, members, matched.groups, matched.by_durations, common_clock=True)
    first_op_ns = trace.base_ns + int(trace.ops.start_ns[0])
    return communication_report(
        matched,
        [participant.rank for participant in matched.participants],
        "GPU",
        None if skew is None else skew_report(skew, first_op_ns),
    )


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
    found: Sequence[Entries],
    parts: Sequence[SplitCommunication],
) -> tuple[Straggler | None, str]:
    """The straggler, its cost as a share of the median window of the devices; else why none."""
    windows = [int(one.ops.end_ns.max() - one.ops.start_ns[0]) for one in participants]
    window_ns = int(np.median(windows)) if windows else 0
    shared = [one.transfer_ns + one.wait_ns + one.unsplit_ns for one in parts]
    number, why_none = find_straggler(found, int(np.median(shared)) if shared else 0)
    if number is None:
        return None, why_none
    one = found[number]
    return (
        Straggler(
            rank=participants[number].rank,
            collectives=one.collectives,
            last_entries=one.last,
            even_entries=one.even,
            caused_wait_ns=one.caused_ns,
            cost_ns=one.cost_ns,
            cost_share=one.cost_ns / window_ns if window_ns else 0.0,
        ),
        "",
    )


def _clocks(participants: int, waits: Sequence[Waits]) -> list[int | None]:
    """Of each participant, its clock's offset in the group with the most collectives."""
    clocks: list[int | None] = [None] * participants
    for wait in sorted(waits, key=lambda wait: len(wait.transfer_ns)):
        for member, clock_ns in zip(wait.group.members, wait.group.clock_ns.tolist(), strict=True):
            clocks[member] = clock_ns
    return clocks


def _collectives(
    operations: Sequence[CollectiveOperation],
    participants: Sequence[Participant],
    waits: Sequence[Waits],
) -> tuple[CollectiveReport, ...]:
    rows = []
    for place, operation in enumerate(operations):
        users = [number for number, one in enumerate(participants) if place in one.operation]
        mine = [one for one in waits if one.group.operation == operation]
        grouped = {number for one in mine for number in one.group.members}
        for one in mine:
            rows.append(_collective(operation, place, participants, one.group.members, one))
        if alone := [number for number in users if number not in grouped]:
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
    lengths = []
    for number in members:
        one = participants[number]
        lengths.append(one.times(np.flatnonzero(one.operation == place)).length_ns)
    matched = 0 if waits is None else len(waits.transfer_ns)
    message_bytes, bus_bytes_per_s = _bandwidth(operation, participants, waits)
    return CollectiveReport(
        operation=operation.name,
        kind=operation.kind,
        ranks=tuple(sorted({participants[number].rank for number in members})),
        matched=matched,
        unmatched=sum(map(len, lengths)) - matched * len(members),
        total_ns=int(sum(int(length.sum()) for length in lengths)),
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


def skew_report(skew: Skew, first_op_ns: int) -> SkewReport:
    """The report of the skew; `first_op_ns` is when the first op began, on the wall clock."""
    start_ns, end_ns, length_ns = skew.start_spread_ns, skew.end_spread_ns, skew.length_spread_ns
    key_ns = start_ns if skew.comparable else length_ns
    worst = np.sort(np.argsort(-key_ns, kind="stable")[:MAX_STEPS])
    began_ns, ended_ns = skew.start_ns.min(axis=0), skew.end_ns.max(axis=0)
    last_to_start, last_to_end = skew.start_ns.argmax(axis=0), skew.end_ns.argmax(axis=0)
    counts = np.bincount(last_to_start[start_ns > 0], minlength=len(skew.ranks)).tolist()
    return SkewReport(
        ranks=skew.ranks,
        steps=len(skew.index),
        start_spread_ns=percentiles(start_ns) if skew.comparable else None,
        end_spread_ns=percentiles(end_ns) if skew.comparable else None,
        duration_spread_ns=percentiles(length_ns),
        last_to_start={
            rank: count
            for rank, count in zip(skew.ranks, counts, strict=True)
            if count and skew.comparable
        },
        worst=tuple(
            StepSkew(
                index=int(skew.index[step]),
                start_spread_ns=_value(start_ns, step, skew.comparable),
                end_spread_ns=_value(end_ns, step, skew.comparable),
                duration_spread_ns=int(length_ns[step]),
                last_to_start=_rank(skew, last_to_start, start_ns, step),
                last_to_end=_rank(skew, last_to_end, end_ns, step),
                at_ns=_value(began_ns - first_op_ns, step, skew.comparable),
                length_ns=_value(ended_ns - began_ns, step, skew.comparable),
            )
            for step in worst.tolist()
        ),
    )


def _value(values_ns: Int64s, step: int, known: bool) -> int | None:
    return int(values_ns[step]) if known else None


def _rank(skew: Skew, last: Int64s, spread_ns: Int64s, step: int) -> int | None:
    """The rank that was last, None if all were at once or there is no common clock."""
    return skew.ranks[int(last[step])] if skew.comparable and spread_ns[step] else None
