"""Communication of ranks or GPUs: transfer and wait apart, the straggler, the skew of the steps."""

from typing import Literal

from msgspec import Struct

from decodescope.analyzer.schema.kernel_report import Percentiles

ClockSource = Literal["common", "durations"]


class RankCommunication(Struct, frozen=True):
    """The communication of one rank over all its devices; in one trace of several GPUs, each GPU
    counts as a rank, by its ordinal.

    `communication_ns` = transfer + wait + unsplit: the times during which a collective transferred,
    every communicating op waited for another rank, and an op communicated whose wait is unknown
    (it was not matched, or it is no mutual collective). Each is exposed where no other op of its
    device ran, else overlapped: the part of it that is not exposed.

    It entered `last_entries` of `collectives` matched ones last; while it did, the other ranks
    waited `caused_wait_ns` in all. `lateness_ns` is how long after the first rank it entered.
    `clock_offset_ns` is how far its clock seems ahead of the median rank's, by the ends of
    collectives; null without matched ones.
    """

    rank: int
    communication_ns: int = 0
    transfer_ns: int = 0
    wait_ns: int = 0
    unsplit_ns: int = 0
    exposed_transfer_ns: int = 0
    exposed_wait_ns: int = 0
    exposed_unsplit_ns: int = 0
    collectives: int = 0
    last_entries: int = 0
    caused_wait_ns: int = 0
    lateness_ns: Percentiles | None = None
    clock_offset_ns: int | None = None


class Straggler(Struct, frozen=True):
    """The rank that the others wait for. It entered `last_entries` of `collectives` last, against
    `even_entries` by chance. The others then waited `caused_wait_ns` in all, `cost_ns` each on
    average, which is `cost_share` of the window."""

    rank: int
    collectives: int
    last_entries: int
    even_entries: float
    caused_wait_ns: int
    cost_ns: int
    cost_share: float


class CollectiveReport(Struct, frozen=True):
    """One operation of one kind in one group of `ranks`. `matched` collectives were recorded by all
    of them. `transfer_ns` is the transfer of one (after the last rank entered), `wait_ns` the wait
    of one rank in one; null for an operation that does not wait for all ranks, and where no other
    rank's was matched. `unmatched` ops have no partner on every rank, and are not split. `total_ns`
    is the sum of durations of all its ops. `group` is the list of ranks that the kernels name, ""
    if they name none. `message_bytes` is the median size of a message where kernels say it, and
    `bus_bytes_per_s` the median of size ÷ transfer time x the factor by which nccl-tests makes it
    the rate of the links: 2 (n - 1) / n of an all-reduce of n ranks, (n - 1) / n of an all-gather,
    reduce-scatter and all-to-all (its size: what a rank gives, of an all-gather what it gets).
    """

    operation: str
    kind: str
    ranks: tuple[int, ...]
    matched: int
    unmatched: int
    total_ns: int
    transfer_ns: Percentiles | None = None
    wait_ns: Percentiles | None = None
    clock: ClockSource | None = None
    group: str = ""
    message_bytes: int | None = None
    bus_bytes_per_s: float | None = None


class StepSkew(Struct, frozen=True):
    """One step over all ranks: last - first start and end of its GPU spans, longest - shortest
    span, and the ranks that start and end it last. It lasts for `length_ns` from its first start,
    `at_ns` after the first op of all ranks, to its last end. What needs a common clock is null
    without one.
    """

    index: int
    start_spread_ns: int | None
    end_spread_ns: int | None
    duration_spread_ns: int
    last_to_start: int | None
    last_to_end: int | None
    at_ns: int | None = None
    length_ns: int | None = None


class SkewReport(Struct, frozen=True):
    """The skew of the `steps` that all of `ranks` recorded. `worst` holds those with the widest
    starts (durations, without a common clock), at most 20, in order of index on the first rank;
    `last_to_start` counts the steps that each rank, by number, starts last."""

    ranks: tuple[int, ...]
    steps: int
    start_spread_ns: Percentiles | None
    end_spread_ns: Percentiles | None
    duration_spread_ns: Percentiles | None
    last_to_start: dict[int, int]
    worst: tuple[StepSkew, ...]


class CommunicationReport(Struct, frozen=True):
    """The communication of the ranks of one run, or of the GPUs of one trace as ranks (`member`).

    `clock` says how waits were found: from starts ("common"), or, where the GPUs' times disagree,
    from "durations", with the ends of each collective taken as simultaneous; null without matched
    collectives. If `straggler` is null, `no_straggler` says why. `collectives` are in order of
    their ops' total time. The steps of a GPU are those that launched most of their ops to it;
    `skew` is null if none is matched.
    """

    ranks: tuple[RankCommunication, ...]
    member: Literal["rank", "GPU"] = "rank"
    clock: ClockSource | None = None
    straggler: Straggler | None = None
    no_straggler: str = ""
    collectives: tuple[CollectiveReport, ...] = ()
    skew: SkewReport | None = None
