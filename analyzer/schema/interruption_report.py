"""Interruptions, and the steady-state figures that exclude them."""

from msgspec import Struct


class InterruptionReport(Struct, frozen=True):
    """Time in which a device was interrupted by something that does not belong to the steps.

    `at_ns` is after the device's first op (0 for what lies before it), `ns` the time set apart: the
    excess over what is usual. `call` is the host call that took it, null if none did, `step` the
    step of the op that ended it or ran long. `evidence` is a sentence. `cause` is one of:

    - wait: a call, or a stream, that waits for an event or a device
    - first_replay: the first launch of a graph in the trace
    - module_loading: kernels are loaded
    - graph_upload: a graph is made executable, changed or uploaded
    - graph_capture: the host captures a graph
    - allocation: memory is allocated, freed or registered
    - profiler: a pause that the profiler reports
    - launch, call: one launch call, or another call, that took far longer than the others
    - late_start: launched in time, begun late
    - long_op: one kernel that ran far longer than the others at its place
    - window_edge: before the first or after the last step, unexplained
    - unlinked: before an op whose launch call is not in the trace
    - host: the launching thread was outside of any call
    """

    at_ns: int
    ns: int
    call: str | None
    cause: str
    evidence: str
    device: int | str
    step: int | None = None


class StepSummary(Struct, frozen=True):
    """Medians (the lower of two) over the `steps` steps of one kind that launched ops, without
    interruptions; `interrupted_steps` is how many steps had one. `kind` is the step's name with "*"
    for its numbers. `time_ns` is over the steps that others follow, if there are any."""

    kind: str
    steps: int
    interrupted_steps: int
    time_ns: int
    host_ns: int
    gpu_span_ns: int
    busy_ns: int
    idle_ns: int
    launch_calls: int
    gpu_ops: int


class SteadyDevice(Struct, frozen=True):
    """One device without its interruptions: `window_ns` + `interrupted_ns` is its window, and
    `busy_ns` + `idle_ns` is `window_ns`. `gaps` holds the idle ns of each class that remains, and
    adds up to `idle_ns`."""

    device: int | str
    window_ns: int
    busy_ns: int
    idle_ns: int
    interrupted_ns: int
    gaps: dict[str, int] = {}


class SteadyState(Struct, frozen=True):
    """The window of all devices without interruptions. `idle_share` = idle ÷ window, null for a
    window without length; `step_ns` is the median time of the most frequent kind of step."""

    window_ns: int
    busy_ns: int
    idle_ns: int
    interrupted_ns: int
    idle_share: float | None
    step_ns: int | None
    devices: tuple[SteadyDevice, ...] = ()
    steps: tuple[StepSummary, ...] = ()
