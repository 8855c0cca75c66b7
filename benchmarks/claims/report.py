"""What `claims --json` prints.

Times are nanoseconds, with fractions. A figure that was not measured is null, and `error` says why.
"""

import re
from typing import Literal

from msgspec import Struct

from decodescope.analyzer.schema.report import Environment
from decodescope.analyzer.schema.run_report import Interval
from decodescope.variants.tuning.report import RoundSpread

SCHEMA_VERSION = 1

# "ratio": how many times as fast. "share": a part of 1, such as of the peak. Others by name.
Unit = Literal["ratio", "share", "tokens_per_s", "ns", "bytes_per_s", "bytes", "launches", "cosine"]


class Source(Struct, frozen=True):
    """Who published a claim, where, and what it was measured on; `gpu` is a part of the name by
    which a driver reports that GPU, "" if the source does not say. Several are joined by ", ".
    `name` is the title in a word or two."""

    title: str
    url: str
    gpu: str
    name: str = ""

    def gpu_like(self, gpu_name: str) -> str | None:
        """The GPU of the source that a driver would give this name; None if there is none."""
        for gpu in filter(None, self.gpu.split(", ")):
            if re.search(rf"\b{re.escape(gpu)}\b", gpu_name, re.IGNORECASE):
                return gpu
        return None


class EntrantFigures(Struct, frozen=True):
    """One of the ways to do the same work, all measured in the same rounds.

    `bytes_moved` and `flops` are what the work takes at least, the same for every entrant;
    `traffic_bytes` is what this way reads and writes in all its `launches`, null if nobody counted.
    `bound_ns` = max(bytes_moved ÷ read peak, flops ÷ datasheet peak). `device_ns`: one call in a
    CUDA graph, whose operands come from memory. `launched_ns`: one call that the host launches,
    right after the previous one. `share_of_bound` = bound_ns ÷ median of device_ns. An entrant
    whose result is wrong has an `error` and no times.

    Of decode steps: `bytes_moved` is what a step of this variant must read, `device_ns` the time in
    which the GPU works in a profiled step, `launched_ns` the mean time of an unprofiled one (its
    reciprocal is tokens/s), `share_of_bound` = bound_ns ÷ median of launched_ns, `launches` the
    launch calls of a step. `relative_error` is that of the logits to those of the loaded weights
    computed in fp32, `kl` their divergence in nats, `perplexity_ratio` of both (of random weights
    it says nothing), each with its 95 % interval, null where none was recorded.
    """

    name: str
    what: str
    ours: bool
    bytes_moved: int | None = None
    flops: int | None = None
    traffic_bytes: int | None = None
    bound_ns: float | None = None
    device_ns: RoundSpread | None = None
    launched_ns: RoundSpread | None = None
    share_of_bound: float | None = None
    relative_error: float | None = None
    tolerance: float | None = None
    launches: float | None = None
    kl: float | None = None
    perplexity_ratio: float | None = None
    kl_interval: Interval | None = None
    perplexity_ratio_interval: Interval | None = None
    error: str | None = None
    note: str | None = None

    @property
    def per_s(self) -> RoundSpread | None:
        """Launched calls or steps a second, round by round."""
        if self.launched_ns is None:
            return None
        return RoundSpread.of([1e9 / ns for ns in self.launched_ns.rounds])


class Race(Struct, frozen=True):
    """Entrants of one size, measured in the same rounds: "calls" of an operation, or the decode
    "steps" of whole models."""

    size: str
    entrants: tuple[EntrantFigures, ...]
    of: Literal["calls", "steps"] = "calls"

    def entrant(self, name: str) -> EntrantFigures:
        """The entrant of this name."""
        return next(one for one in self.entrants if one.name == name)


class Row(Struct, frozen=True):
    """One published figure beside the one measured here.

    `limit` is the best that this GPU's bound allows, in the same unit: of a ratio, the baseline's
    time ÷ the bound. `published_share` and `measured_share` are how close both come to the bound of
    their own GPU. `explanation` says in one line what makes the difference, from figures of this
    run. With an `error` there is no measured figure. Not `comparable`: published for another GPU.
    `baseline`: a figure of what the source improves on, reproduced here; nobody tries to reach it.
    """

    what: str
    unit: Unit
    published: float | None = None
    measured: RoundSpread | None = None
    limit: float | None = None
    published_share: float | None = None
    measured_share: float | None = None
    higher_is_better: bool = True
    explanation: str = ""
    error: str | None = None
    comparable: bool = True
    baseline: bool = False

    @property
    def reached(self) -> bool | None:
        """Whether the median is at least as good as the published figure; None without both, where
        they do not compare, and of a baseline."""
        if self.published is None or self.measured is None or not self.comparable or self.baseline:
            return None
        if self.higher_is_better:
            return self.measured.median >= self.published
        return self.measured.median <= self.published


class Clocks(Struct, frozen=True):
    """What the GPU reported between the rounds; null without NVML."""

    sm_mhz_min: int | None = None
    sm_mhz_max: int | None = None
    power_w_max: float | None = None
    throttled_by: tuple[str, ...] = ()


class ClaimResult(Struct, frozen=True):
    """One claim measured here. `comparable` says what can be compared with the source's figures."""

    name: str
    title: str
    source: Source
    comparable: str
    rows: tuple[Row, ...]
    races: tuple[Race, ...] = ()
    notes: tuple[str, ...] = ()
    clocks: Clocks = Clocks()
    seconds: float = 0.0
    error: str | None = None


class ClaimsReport(Struct, frozen=True):
    """`claims --json`. `launch_floor_ns` is the shortest time of a kernel that does next to
    nothing, one of many in a CUDA graph. `rounds` are those of races of calls; those of steps have
    as many times as rounds."""

    schema_version: int
    measured_peak_bytes_per_s: float | None
    measured_peak_at: str | None
    datasheet_peak_bytes_per_s: float | None
    launch_floor_ns: float
    l2_bytes: int
    rounds: int
    claims: tuple[ClaimResult, ...]
    environment: Environment

    @property
    def errors(self) -> tuple[str, ...]:
        """Each claim that failed, and each failed check of ours, as one sentence."""
        claims = [f"{one.name}: {one.error}" for one in self.claims if one.error is not None]
        checks = [
            f"{claim.name}, {race.size}, {entrant.name}: {entrant.error}"
            for claim in self.claims
            for race in claim.races
            for entrant in race.entrants
            if entrant.ours and entrant.error is not None
        ]
        return (*claims, *checks)
