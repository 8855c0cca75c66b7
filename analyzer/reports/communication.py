"""Communication of ranks or of the GPUs of one trace: transfer, wait, straggler, collectives, and
how far apart they are in each step."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
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
from decodescope.analyzer.schema.communication_report import (
    ClockSource,
    CollectiveReport,
    CommunicationReport,
    RankCommunication,
    SkewReport,
    StepSkew,
    Straggler,
)
from decodescope.analyzer.timing.steps import Steps
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Intervals, Trace

MAX_STEPS = 20


@dataclass(frozen=True, slots=True, eq=False)
class RankSteps(Intervals):
    """The GPU spans of one rank's steps on the wall clock. Steps without ops have no span, `used`
    is False for them."""

    used: Bools


def rank_steps(trace: Trace, steps: Steps) -> RankSteps:
    start_ns, end_ns = steps.span.start_ns + trace.base_ns, steps.span.end_ns + trace.base_ns
    return RankSteps(start_ns, end_ns, steps.gpu_ops > 0)


def steps_by_device(
    trace: Trace, steps: Steps, participants: Sequence[Participant]
) -> tuple[dict[int, RankSteps], list[Participant]]:
    """The steps that launched most of their ops to each participant's device, as if that were a
    rank; and these ranks, whose steps are numbered in these."""
    every = rank_steps(trace, steps)
    spans, ranks = {}, []
    for participant in participants:
        step_indices = np.flatnonzero((steps.device == participant.device) & every.used)
        number = np.full(len(steps) + 1, -1, dtype=np.int64)
        number[step_indices] = np.arange(len(step_indices))
        spans[participant.device] = every.take(step_indices)
        collectives = participant.collectives
        collectives = replace(collectives, step=number[collectives.step])
        ranks.append(replace(participant, rank=participant.device, collectives=collectives))
    return spans, ranks


def skew_report(
    matched: MatchedCollectives,
    spans: Mapping[int, RankSteps],
    *,
    common_clock: bool,
    first_op_ns: int,
) -> SkewReport | None:
    """The skew over the steps of the largest group (of equally large ones, with the most
    collectives). `spans` are the steps of each rank, `first_op_ns` is when the first op began, on
    the wall clock.

    A step of one rank is that of another in which most of their matched collectives are. Without
    collectives, steps are matched in order if all ranks have equally many. If waits are found from
    durations, the differences of the clocks are taken off. None if no step is matched.
    """
    participants, by_durations = matched.participants, matched.by_durations
    largest = max(
        matched.groups, key=lambda group: (len(group.members), group.op.shape[1]), default=None
    )
    if largest is None:
        if len({len(steps) for steps in spans.values()}) > 1 or len(spans) < 2:
            return None
        return _report(spans, dict.fromkeys(spans, 0), common_clock, first_op_ns)
    chosen: dict[int, RankSteps] = {}
    offsets = {}
    first = participants[largest.members[0]].collectives.step[largest.op[0]]
    for number, op, clock_ns in zip(largest.members, largest.op, largest.clock_ns, strict=True):
        rank, step = participants[number].rank, participants[number].collectives.step[op]
        both = (first >= 0) & (step >= 0)
        if both.any() and rank not in chosen:
            apart, counts = np.unique((first - step)[both], return_counts=True)
            offsets[rank] = int(apart[counts.argmax()])
            ahead_ns, steps = int(clock_ns) if by_durations else 0, spans[rank]
            chosen[rank] = replace(
                steps, start_ns=steps.start_ns - ahead_ns, end_ns=steps.end_ns - ahead_ns
            )
    return _report(chosen, offsets, True, first_op_ns) if len(chosen) > 1 else None


def _report(
    spans: Mapping[int, RankSteps], offsets: Mapping[int, int], comparable: bool, first_op_ns: int
) -> SkewReport | None:
    """The skew of the steps that every rank has; step i of the first rank is step i - offset of
    another. `comparable` is False where there is no common clock, and only lengths compare."""
    ranks = tuple(spans)
    index = np.arange(len(spans[ranks[0]])) + offsets[ranks[0]]
    kept = np.ones(len(index), dtype=np.bool_)
    for rank, steps in spans.items():
        row = index - offsets[rank]
        inside = (row >= 0) & (row < len(steps))
        kept &= inside
        kept[inside] &= steps.used[row[inside]]
    if not kept.any():
        return None
    index = index[kept]
    matched = [steps.take(index - offsets[rank]) for rank, steps in spans.items()]
    start_ns = np.array([steps.start_ns for steps in matched])
    end_ns = np.array([steps.end_ns for steps in matched])
    start_spread_ns, end_spread_ns = np.ptp(start_ns, axis=0), np.ptp(end_ns, axis=0)
    duration_spread_ns = np.ptp(end_ns - start_ns, axis=0)
    key_ns = start_spread_ns if comparable else duration_spread_ns
    worst = np.sort(np.argsort(-key_ns, kind="stable")[:MAX_STEPS])
    began_ns, ended_ns = start_ns.min(axis=0), end_ns.max(axis=0)
    starts_last, ends_last = start_ns.argmax(axis=0), end_ns.argmax(axis=0)
    counts = np.bincount(starts_last[start_spread_ns > 0], minlength=len(ranks)).tolist()

    def on_clock(time_ns: np.int64) -> int | None:
        return int(time_ns) if comparable else None

    return SkewReport(
        ranks=ranks,
        steps=len(index),
        start_spread_ns=percentiles(start_spread_ns) if comparable else None,
        end_spread_ns=percentiles(end_spread_ns) if comparable else None,
        duration_spread_ns=percentiles(duration_spread_ns),
        last_to_start={
            rank: count for rank, count in zip(ranks, counts, strict=True) if count and comparable
        },
        worst=tuple(
            StepSkew(
                index=int(index[step] - offsets[ranks[0]]),
                start_spread_ns=on_clock(start_spread_ns[step]),
                end_spread_ns=on_clock(end_spread_ns[step]),
                duration_spread_ns=int(duration_spread_ns[step]),
                last_to_start=ranks[starts_last[step]]
                if comparable and start_spread_ns[step]
                else None,
                last_to_end=ranks[ends_last[step]] if comparable and end_spread_ns[step] else None,
                at_ns=on_clock(began_ns[step] - first_op_ns),
                length_ns=on_clock(ended_ns[step] - began_ns[step]),
            )
            for step in worst.tolist()
        ),
    )


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
