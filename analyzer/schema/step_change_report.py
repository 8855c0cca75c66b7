"""Where one step takes longer than another: by role and by layer."""

from typing import Literal

from msgspec import Struct

PartKind = Literal[
    "role", "idle", "host_tail", "beyond_step", "not_busy",
    "layer", "more_layers", "prologue", "epilogue", "outside",
]  # fmt: skip


class StepPartChange(Struct, frozen=True):
    """One part of both steps; a side that lacks it is null. `change_ns` is other - base, where a
    missing part takes no time.

    `kind` says what `part` is:

    - role: the attributed time of a role (`RoleReport`)
    - layer: that of one layer, or of as many layers of a motif as both sides have, at their mean
    - more_layers: that of the layers which one side has more
    - prologue, epilogue, outside: that of the ops before and after the layers, and of other ops
      that ran in the step: of other steps, or of devices without layers
    - idle: idle time of one class, host_tail: the host's time after the last op (`waterfall`)
    - not_busy: idle time and host tail together
    - beyond_step: what roles and layers count, but the step's time does not (negative): ops that
      ran while the next step did, or during an interruption

    Ops are null for time in which nothing runs.
    """

    part: str
    kind: PartKind
    base_ns: int | None
    other_ns: int | None
    change_ns: int
    base_ops: int | None = None
    other_ops: int | None = None


class StepChanges(Struct, frozen=True):
    """The profiled steps that stand for two traces (`StructureReport.step`), without
    interruptions. `roles` adds up to `change_ns` exactly, and each side of it to that side's step;
    so does `layers`, which is empty unless both steps have layers. The largest change is first."""

    base_ns: int
    other_ns: int
    change_ns: int
    roles: tuple[StepPartChange, ...]
    layers: tuple[StepPartChange, ...] = ()
