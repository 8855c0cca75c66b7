"""The rank that the others wait for, and whether that is more than chance."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.collectives.waits import Waits
from decodescope.analyzer.trace import Int64s

# A straggler enters last this much more often than its even share (as a share of its collectives,
# and in standard deviations of an even draw), and costs the others this part of the time in which
# they communicate.
MIN_EXCESS, MIN_SIGMAS, MIN_COST = 0.25, 4.0, 0.05


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """How one device entered the matched collectives. `last` of `collectives` it entered last;
    by chance it would be `even` with the standard deviation `even_sigma`. In those, the other
    members waited `caused_ns` in all, `cost_ns` each on average. `late_ns[k]` is how long after the
    first member it entered collective k."""

    collectives: int
    last: int
    even: float
    even_sigma: float
    caused_ns: int
    cost_ns: int
    late_ns: Int64s

    @property
    def excess(self) -> float:
        """How much more often than evenly it entered last, as a share of its collectives."""
        return (self.last - self.even) / self.collectives if self.collectives else 0.0


def entries(participants: int, waits: Sequence[Waits]) -> list[Entries]:
    """Over all groups, one for each participant.

    With n members in a collective: even = sum of 1/n, even_sigma² = sum of (1/n)(1 - 1/n).
    """
    return [_entries(number, waits) for number in range(participants)]


def _entries(number: int, waits: Sequence[Waits]) -> Entries:
    mine = [one for one in waits if number in one.group.members]
    places = [one.group.members.index(number) for one in mine]
    here = [one.last == place for one, place in zip(mine, places, strict=True)]
    evens = [(1 / len(one.group.members), len(one.last)) for one in mine]
    caused = [int(one.caused_ns[was].sum()) for one, was in zip(mine, here, strict=True)]
    others = [len(one.group.members) - 1 for one in mine]
    late = [one.late_ns[place] for one, place in zip(mine, places, strict=True)]
    return Entries(
        collectives=sum(len(one.last) for one in mine),
        last=sum(int(was.sum()) for was in here),
        even=sum(even * count for even, count in evens),
        even_sigma=float(np.sqrt(sum(even * (1 - even) * count for even, count in evens))),
        caused_ns=sum(caused),
        cost_ns=sum(ns // count for ns, count in zip(caused, others, strict=True)),
        late_ns=np.concatenate([*late, np.zeros(0, dtype=np.int64)]),
    )


def find_straggler(found: Sequence[Entries], communication_ns: int) -> tuple[int | None, str]:
    """The participant whose lateness cost the others most, if it is a straggler by the rule above;
    and why it is none: "" if one is found. `communication_ns` is how long a device communicates.
    """
    if not any(one.collectives for one in found):
        return None, "no collectives were matched"
    number = max(range(len(found)), key=lambda number: (found[number].cost_ns, -number))
    one = found[number]
    last = f"entered {one.last} of {one.collectives} collectives last"
    if one.excess < MIN_EXCESS or one.last - one.even < MIN_SIGMAS * one.even_sigma:
        return None, f"even: no rank is late often enough; the one that cost most {last}"
    if one.cost_ns < MIN_COST * communication_ns:
        share = f"{one.cost_ns / communication_ns:.1%} of their communication"
        return None, f"small: the rank that cost most {last}, but the others waited only {share}"
    return number, ""
