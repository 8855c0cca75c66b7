"""Interruptions."""

from msgspec import Struct


class InterruptionReport(Struct, frozen=True):
    """Time in which a device was interrupted by something that does not belong to the steps.

    `at_ns` is after the device's first op, `ns` the time set apart: the excess over what is usual.
    `call` is the host call that took it, null if none did, `step` the step of the op that ended it
    or ran long. `evidence` is a sentence. `cause` is one of:

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
