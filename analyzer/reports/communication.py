"""Communication of ranks or of the GPUs of one trace: transfer, wait, straggler, collectives."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal

import numpy as np
from msgspec import structs

from decodescope.analyzer.collectives.groups import Group, MatchedCollectives, match_collectives
from decodescope.analyzer.collectives.participants import (
    CollectiveOperation,
    Participant,
    find_participants,
)
from decodescope.analyzer.collectives.waits import (
    Entries,
    OpWaits,
    entries_of,
    op_waits,
    split_communication,
    transfer_starts,
)
from decodescope.analyzer.reports.distributions import percentiles
from decodescope.analyzer.reports.skew_report import RankSteps, skew_report, steps_by_device
from decodescope.analyzer.schema.communication_report import (
    ClockSource,
    CollectiveReport,
    CommunicationReport,
    RankCommunication,
    Straggler,
)
from decodescope.analyzer.timing.timeline import Timeline

# A straggler enters last this much more often than its even share (as a share of its collectives,
# and in standard deviations of an even draw), and costs the others this part of the time in which
# they communicate.
MIN_EXCESS, MIN_SIGMAS, MIN_COST = 0.25, 4.0, 0.05
# By operation, the factor of (n - 1) / n in nccl-tests (doc/PERFORMANCE.md) for n ranks: bus
# bandwidth = message size ÷ time x factor x (n - 1) / n.
_BUS_FACTORS = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}


def communication_report(
    matched: MatchedCollectives,
    spans: Mapping[int, RankSteps],
    member: Literal["rank", "GPU"],
    *,
    common_clock: bool,
    first_op_ns: int,
) -> CommunicationReport:
    """The communication of each rank in `spans`, which are its steps. `common_clock`: the wall
    clocks of the ranks are one; `first_op_ns` is when the first op began."""
    participants, groups = matched.participants, matched.matched_groups
    entries = [entries_of(number, groups) for number in range(len(participants))]
    parts = [
        split_communication(participant, start_ns)
        for participant, start_ns in zip(
            participants, transfer_starts(participants, groups), strict=True
        )
    ]
    # The clock of a participant is that of its group with the most collectives.
    clocks_ns: dict[int, int] = {}
    for group in sorted(groups, key=lambda group: len(group.transfer_ns)):
        clocks_ns |= zip(group.members, group.clock_ns.tolist(), strict=True)
    straggler, no_straggler = _straggler(participants, entries, parts)
    rows = []
    for rank in spans:
        places = [
            place for place, participant in enumerate(participants) if participant.rank == rank
        ]
        split = sum((parts[place] for place in places), Counter[str]())
        late_ns = [np.zeros(0, dtype=np.int64), *(entries[place].late_ns for place in places)]
        rows.append(
            RankCommunication(
                rank=rank,
                communication_ns=_communication_ns(split),
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
        clock=_clock_source(matched.by_durations) if groups else None,
        straggler=straggler,
        no_straggler=no_straggler,
        collectives=_collectives(matched),
        skew=skew_report(matched, spans, common_clock=common_clock, first_op_ns=first_op_ns),
    )


def gpu_communication(timeline: Timeline) -> CommunicationReport | None:
    """The communication of each GPU as if it were a rank. None without two that communicate, and
    of merged ranks, where `RanksReport` has it."""
    trace, steps = timeline.trace, timeline.steps
    if trace.device_labels:
        return None
    operations, participants = find_participants([(0, trace, steps)])
    if len(participants) < 2:
        return None
    spans, ranks = steps_by_device(trace, steps, participants)
    return communication_report(
        match_collectives(operations, ranks, common_clock=True),
        spans,
        "GPU",
        common_clock=True,
        first_op_ns=trace.base_ns + int(trace.ops.start_ns[0]),
    )


def waits_of(timeline: Timeline) -> OpWaits | None:
    """How long each op waited for other GPUs, also of merged ranks; None without two GPUs that
    communicate. For views that draw time: computed anew by every call."""
    operations, participants = find_participants([(0, timeline.trace, timeline.steps)])
    if len(participants) < 2:
        return None
    matched = match_collectives(operations, participants, common_clock=True)
    return op_waits(timeline.trace, participants, matched.matched_groups)


def _clock_source(by_durations: bool) -> ClockSource:
    return "durations" if by_durations else "common"


def _straggler(
    participants: Sequence[Participant], entries: Sequence[Entries], parts: Sequence[Counter[str]]
) -> tuple[Straggler | None, str]:
    """The device whose lateness cost the others most, if it is a straggler by the rule above; and
    why it is none, "" if it is."""
    if not any(entry.collectives for entry in entries):
        return None, "no collectives were matched"
    number = int(np.argmax([entry.cost_ns for entry in entries]))
    entered = entries[number]
    last = f"entered {entered.last} of {entered.collectives} collectives last"
    excess = entered.last - entered.even
    if excess < max(MIN_EXCESS * entered.collectives, MIN_SIGMAS * entered.even_sigma):
        return None, f"even: no rank is late often enough; the one that cost most {last}"
    typical_ns = int(np.median([_communication_ns(split) for split in parts]))
    if entered.cost_ns < MIN_COST * typical_ns:
        share = f"{entered.cost_ns / typical_ns:.1%} of their communication"
        return None, f"small: the rank that cost most {last}, but the others waited only {share}"
    windows_ns = [int(device.ops.end_ns.max() - device.ops.start_ns[0]) for device in participants]
    window_ns = int(np.median(windows_ns))
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


def _communication_ns(split: Counter[str]) -> int:
    return split["transfer_ns"] + split["wait_ns"] + split["unsplit_ns"]


def _collectives(matched: MatchedCollectives) -> tuple[CollectiveReport, ...]:
    participants, rows = matched.participants, []
    for place, operation in enumerate(matched.operations):
        groups = [group for group in matched.groups if group.operation == operation]
        in_groups = {number for group in groups for number in group.members}
        alone = [
            number
            for number, participant in enumerate(participants)
            if number not in in_groups and place in participant.collectives.operation
        ]
        members: list[tuple[Sequence[int], Group | None]]
        members = [(group.members, group) for group in groups]
        members += [(alone, None)] if alone else []
        for numbers, group in members:
            users = [participants[number] for number in numbers]
            rows.append(_collective(operation, place, users, group))
    rows.sort(key=lambda row: (-row.total_ns, row.operation, row.kind, row.ranks))
    return tuple(rows)


def _collective(
    operation: CollectiveOperation, place: int, users: Sequence[Participant], group: Group | None
) -> CollectiveReport:
    lengths_ns = np.concatenate(
        [user.collectives.length_ns[user.collectives.operation == place] for user in users]
    )
    report = CollectiveReport(
        operation=operation.name,
        kind=operation.kind,
        ranks=tuple(sorted({user.rank for user in users})),
        matched=0,
        unmatched=len(lengths_ns),
        total_ns=int(lengths_ns.sum()),
        group=operation.group,
    )
    if group is None:
        return report
    matched = len(group.transfer_ns)
    message_bytes, bus_bytes_per_s = _bandwidth(users[0], group)
    return structs.replace(
        report,
        matched=matched,
        unmatched=len(lengths_ns) - matched * len(users),
        transfer_ns=percentiles(group.transfer_ns),
        wait_ns=percentiles(group.wait_ns.ravel()),
        clock=_clock_source(group.by_durations) if matched else None,
        message_bytes=message_bytes,
        bus_bytes_per_s=bus_bytes_per_s,
    )


def _bandwidth(first: Participant, group: Group) -> tuple[int | None, float | None]:
    """The median size of the matched messages and the median of their bus bandwidth; `first` is the
    first member. Sizes are as nccl-tests counts them: the payload of a rank, of an all-gather that
    of all ranks."""
    count, operation = len(group.members), group.operation.name
    size = first.collectives.bytes[group.op[0]] * (count if operation == "all_gather" else 1)
    known = (size > 0) & (group.transfer_ns > 0)
    factor = _BUS_FACTORS.get(operation)
    if not known.any() or factor is None:
        return None, None
    rates = size[known] / group.transfer_ns[known] * 1e9 * (factor * ((count - 1) / count))
    return int(np.median(size[known])), float(np.median(rates))
