"""The answer: how long a step takes, how long it would have to, and where the difference goes."""

from typing import Literal

from msgspec import Struct

from decodescope.analyzer.schema.step_report import Confidence, StepKind

Bound = Literal["host", "memory", "compute", "communication", "copies", "kernels", "unknown"]
PartGroup = Literal["kernels", "host", "communication", "copies", "profiler"]
StepLimitBound = Literal["memory", "compute"]
LimitBound = StepLimitBound | Literal["links"]
ModelSource = Literal["capture", "named", "guessed", "shapes"]


class AnswerPart(Struct, frozen=True):
    """One part of a step: a role of its kernels, a class of its idle time, exposed communication,
    copies, or the profiler's cost.

    `ns` is attributed time; those of all parts add up to `Answer.whole_ns` exactly, and `share` is
    of that. `limit_ns` is the least time that the part's bytes and FLOPs take, because of
    `limit_bound`; null where neither a model nor the trace says them. `over_ns` = `ns` -
    `limit_ns`; of idle time, it is `ns`. `ops` is the number of GPU ops, and `kernel` the full name
    of the one that takes most of the part.

    `bytes` must be moved in the step, and `flops` computed; null where they are unknown. With a
    model they are its own, and the work of a role without ops counts for the role whose kernel does
    it; without one they are those of the ops whose shapes the trace has, a lower bound.
    `confidence` is "exact" if the names alone decide the role of all its ops, "partial" if their
    place in the step does, "none" for families and idle time.
    """

    part: str
    group: PartGroup
    ns: int
    limit_ns: int | None
    over_ns: int | None
    share: float
    ops: int = 0
    kernel: str | None = None
    limit_bound: LimitBound | None = None
    bytes: int | None = None
    flops: int | None = None
    confidence: Confidence = "none"

    @property
    def lost_ns(self) -> int:
        """The time over the limit; where that is not known, all of the part's time."""
        return self.ns if self.over_ns is None else self.over_ns


class HostFrame(Struct, frozen=True):
    """The host's activity while a step's devices waited for it: the innermost Python frame
    (`vllm/v1/engine/core.py(410): step`), operator and API call, each null if none was open or the
    trace does not record them. `ns` is the mean per step of the time that it covers."""

    frame: str | None
    operator: str | None
    call: str | None
    ns: int


class Answer(Struct, frozen=True):
    """The step of a trace: its time, its limit, its parts, its bound, and the next thing to do.

    `kind` is the main kind of the trace's steps and `steps` the number of its steps; `step` (an
    index in `Report.steps`) is the one with the median time, `step_ns`, that `parts` are of.
    `unprofiled_step_ns` is the median step time without a profiler, if it was measured.
    `tokens_per_s` = `batch` ÷ the unprofiled step time, else ÷ `step_ns`.

    Without steps, `step` and `step_ns` are null. `whole_ns` is what the parts add up to: `step_ns`,
    or the window of all devices without interruptions.

    `limit_ns` is the sum of the parts' limits; with `limit_is_lower_bound`, the work that it counts
    is not all of a step's (the batch or KV length is unknown, or only some products are known).
    `model` is what it rests on and `model_source` how that is known. `parts` are in order of
    `over_ns` (`ns` where that is null), the largest first; the profiler's cost is the last.
    `interruptions_ns` is set apart, and in none of the other figures. `bound` says which of them
    decides, `because` the figures that show it, `next` what to do. The defaults are the answer of a
    trace without GPU ops and steps. With steps alone, `step_ns` is the host's time from one to the
    next, `step` is null and `whole_ns` 0.
    """

    kind: StepKind = "unknown"
    steps: int = 0
    step: int | None = None
    step_ns: int | None = None
    whole_ns: int = 0
    tokens_per_s: float | None = None
    batch: int | None = None
    limit_ns: int | None = None
    limit_is_lower_bound: bool = False
    limit_bound: StepLimitBound | None = None
    model: str | None = None
    model_source: ModelSource | None = None
    bound: Bound = "unknown"
    parts: tuple[AnswerPart, ...] = ()
    interruptions_ns: int = 0
    host: tuple[HostFrame, ...] = ()
    because: tuple[str, ...] = ()
    next: tuple[str, ...] = ()
    unprofiled_step_ns: int | None = None

    @property
    def profiler_ratio(self) -> float | None:
        """Profiled step time ÷ unprofiled one; None unless both are known."""
        if not (self.step_ns and self.unprofiled_step_ns):
            return None
        return self.step_ns / self.unprofiled_step_ns
