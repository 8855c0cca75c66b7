"""Synthetic decode traces: a plan of steps, and the trace that its host and device would leave.

The host thread schedules a step in Python, launches its kernels one by one or as one graph, and
waits for the device, or runs ahead. The device runs the kernels of each stream one after another.
Both are simulated in ns, so that every time is known: `truth.py` derives the figures from them.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

from decodescope.analyzer.schema.step_report import StepKind
from decodescope.analyzer.trace import Trace
from tests.helpers.drawn_windows import Call, Op
from tests.helpers.kineto_events import Event, document, event, op, read

PYTHON_ENGINE = "vllm/v1/engine/core.py(410): step"
PYTHON_SCHEDULE = "vllm/v1/core/sched/scheduler.py(61): schedule"
PYTHON_STEP = "vllm/v1/worker/gpu_model_runner.py(123): execute_model"
PYTHON_FORWARD = "vllm/model_executor/models/llama.py(77): forward"
KERNEL, COPY, FILL = "kernel", "gpu_memcpy", "gpu_memset"


@dataclass(frozen=True)
class Kernel:
    """A GPU op of `ns` that counts for `part`. It begins `gap_ns` after the op before it on its
    stream at the earliest; a negative gap is an overlap, as programmatic dependent launch makes."""

    name: str
    part: str
    ns: int
    gap_ns: int = 700
    stream: int = 7
    category: str = KERNEL


@dataclass(frozen=True)
class Hold:
    """Before the host launches kernel `before`, it is held up for `ns`: by a call of this name,
    by Python (None), or in the launch call itself."""

    before: int
    ns: int
    call: str | None = None
    in_launch: bool = False


@dataclass(frozen=True)
class Step:
    """The host works for `schedule_ns` in Python, and for `python_ns` before each launch but the
    first; `graph`: one launch for all kernels. `mark` annotates the launches of the step."""

    kernels: tuple[Kernel, ...]
    kind: StepKind = "decode"
    batch: int | None = None
    mark: str | None = None
    graph: bool = True
    schedule_ns: int = 20_000
    python_ns: int = 0
    waits: bool = True
    hold: Hold | None = None
    frame: str = PYTHON_STEP


@dataclass(frozen=True)
class Plan:
    """The steps of one thread on one device. `frames`: Python frames are recorded. `coarse`:
    timestamps are whole µs. `cut`: the window begins inside the first step and ends inside the last
    one. `begin_ns` is the start of the clock; numbers of threads, graphs and
    correlations begin at `number`, which several plans in one trace must not share."""

    steps: tuple[Step, ...]
    frames: bool = False
    coarse: bool = False
    cut: bool = False
    call_ns: int = 4_008
    latency_ns: int = 2_004
    return_ns: int = 1_500
    begin_ns: int = 1_000_000
    number: int = 1
    pid: int = 4242
    device: int = 0
    device_name: str = "NVIDIA H100 80GB HBM3"
    keys: dict[str, Any] = field(default_factory=dict)

    def without_holds(self) -> "Plan":
        return replace(self, steps=tuple(replace(step, hold=None) for step in self.steps))


@dataclass(frozen=True)
class RecordedOp(Op):
    name: str
    part: str
    category: str
    graph: int
    step: int


@dataclass(frozen=True)
class Span:
    start: int
    end: int
    name: str


@dataclass
class Recording:
    """Host calls and device operations of a plan, in ns."""

    plan: Plan
    ops: list[RecordedOp] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    marks: list[Span] = field(default_factory=list)
    frames: list[Span] = field(default_factory=list)
    host_ns: int = 0
    free_ns: dict[int, int] = field(default_factory=dict)

    def work(self, ns: int, frame: str | None = None) -> None:
        if frame is not None and ns:
            self.frames.append(Span(self.host_ns, self.host_ns + ns, frame))
        self.host_ns += ns

    def call(self, name: str, ns: int) -> int:
        correlation = self.plan.number * 1_000_000 + len(self.calls)
        end_ns = self.host_ns + ns
        self.calls.append(Call(self.host_ns, end_ns, correlation, name, self.plan.number))
        self.host_ns = end_ns
        return correlation

    def launch(self, step: int, kernels: tuple[Kernel, ...], hold: Hold | None) -> None:
        """One launch call, after the hold; the device runs the kernels as soon as it can."""
        plan = self.plan
        if hold is not None and not hold.in_launch:
            self.work(hold.ns) if hold.call is None else self.call(hold.call, hold.ns)
        graph = plan.number * 1_000 + len(kernels) if self.plan.steps[step].graph else 0
        name = "cudaMemcpyAsync" if kernels[0].category == COPY else "cudaLaunchKernel"
        longer_ns = hold.ns if hold is not None and hold.in_launch else 0
        correlation = self.call("cudaGraphLaunch" if graph else name, plan.call_ns + longer_ns)
        ready_ns = self.host_ns + plan.latency_ns
        for kernel in kernels:
            free_ns = self.free_ns.get(kernel.stream)
            start_ns = max(ready_ns, ready_ns if free_ns is None else free_ns + kernel.gap_ns)
            end_ns = start_ns + kernel.ns
            self.free_ns[kernel.stream] = end_ns
            self.ops.append(
                RecordedOp(
                    start_ns,
                    end_ns,
                    correlation,
                    kernel.stream,
                    plan.device,
                    kernel.name,
                    kernel.part,
                    kernel.category,
                    graph,
                    step,
                )
            )

    def wait(self) -> None:
        """The host waits until the device has nothing to do."""
        until_ns = max(self.free_ns.values(), default=0) + self.plan.return_ns
        self.call("cudaStreamSynchronize", max(until_ns - self.host_ns, 0))


def record(plan: Plan) -> Recording:
    recording = Recording(plan, host_ns=plan.begin_ns)
    for index, step in enumerate(plan.steps):
        engine_ns = recording.host_ns
        recording.work(step.schedule_ns, PYTHON_SCHEDULE)
        began_ns = recording.host_ns
        launches = [step.kernels] if step.graph else [(kernel,) for kernel in step.kernels]
        for place, kernels in enumerate(launches if step.kernels else ()):
            if place:
                recording.work(step.python_ns, PYTHON_FORWARD)
            held = step.hold is not None and step.hold.before == place
            recording.launch(index, kernels, step.hold if held else None)
        if step.mark is not None:
            recording.marks.append(Span(began_ns, recording.host_ns, step.mark))
        recording.frames.append(Span(began_ns, recording.host_ns, step.frame))
        if step.waits:
            recording.wait()
        recording.frames.append(Span(engine_ns, recording.host_ns, PYTHON_ENGINE))
    if plan.cut:
        recording = _cut(recording)
    return _changed(recording, _coarse) if plan.coarse else recording


Spans = list[Any]


def _changed(recording: Recording, change: Callable[[Spans], Spans]) -> Recording:
    """The recording with each of its lists changed."""
    names = ("ops", "calls", "marks", "frames")
    return replace(recording, **{name: change(getattr(recording, name)) for name in names})


def _coarse(spans: Spans) -> Spans:
    """As a profiler with a clock of whole µs writes them."""
    return [
        replace(span, start=span.start // 1000 * 1000, end=span.end // 1000 * 1000)
        for span in spans
    ]


def _cut(recording: Recording) -> Recording:
    """Part of the recording that begins between the middle of the first step and the middle of
    the last one. The first step, without its mark, is no step."""
    middles = []
    for step in (0, len(recording.plan.steps) - 1):
        ops = [op for op in recording.ops if op.step == step]
        middles.append(ops[len(ops) // 2].start)
    first_ns, last_ns = middles
    cut = _changed(recording, lambda s: [one for one in s if first_ns <= one.start < last_ns])
    return replace(cut, ops=[replace(op, step=-1) if op.step == 0 else op for op in cut.ops])


def events_of(recording: Recording) -> list[Event]:
    """The recording as Kineto writes it."""
    plan = recording.plan
    host = plan.pid, plan.number
    events = [
        event("cuda_runtime", call.name, call.start, call.end, *host, correlation=call.correlation)
        for call in recording.calls
    ]
    nodes: dict[int, int] = {}
    for each in recording.ops:
        graph = {}
        if each.graph:
            nodes[each.correlation] = nodes.get(each.correlation, 0) + 1
            graph = {"graph_id": each.graph, "graph_node_id": nodes[each.correlation]}
        events.append(
            op(
                each.start,
                each.end,
                each.correlation,
                name=each.name,
                device=each.device,
                stream=each.stream,
                cat=each.category,
                **graph,
            )
        )
    events += [event("user_annotation", m.name, m.start, m.end, *host) for m in recording.marks]
    return events + (_python(recording) if plan.frames else [])


def _python(recording: Recording) -> list[Event]:
    """The Python frames, each with its own number and that of the frame around it."""
    events, opened = [], list[tuple[int, Span]]()
    frames = sorted(recording.frames, key=lambda frame: (frame.start, -frame.end))
    for number, frame in enumerate(frames, start=1):
        while opened and opened[-1][1].end < frame.end:
            opened.pop()
        made = event(
            "python_function",
            frame.name,
            frame.start,
            frame.end,
            recording.plan.pid,
            recording.plan.number,
        )
        made["args"] = {"Python id": number} | (
            {"Python parent id": opened[-1][0]} if opened else {"Python parent id": None}
        )
        events.append(made)
        opened.append((number, frame))
    return events


def file_of(plans: tuple[Plan, ...], recordings: list[Recording] | None = None) -> bytes:
    """One trace file of what all plans did."""
    events = [e for one in recordings or [record(plan) for plan in plans] for e in events_of(one)]
    names = {plan.device: plan.device_name for plan in plans}
    properties = [{"id": device, "name": name} for device, name in names.items()]
    keys = {key: value for plan in plans for key, value in plan.keys.items()}
    return document(events, deviceProperties=properties, **keys)


def trace_of_plans(*plans: Plan) -> Trace:
    return read(file_of(plans))
