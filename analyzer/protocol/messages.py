"""The messages between the worker process and the app, and the frames that carry them.

A frame is a big-endian uint32 length and that many bytes of msgpack, one tagged struct.

Control messages are never dropped. Only the latest `Stats` matters, so the worker drops one when
the channel is full and counts it in `dropped`. Bulk events never cross the channel: a captured
window goes to a file and `TraceReady` names it. A recording (`analyzer/recordings/recording.py`)
holds the worker's messages with their times.

A new version only adds messages, and fields with a default, so recordings of every earlier version
stay readable. Version 2 added settings, single steps, heartbeats and meters.
"""

import struct
from typing import Literal

import msgspec
from msgspec import Struct

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.schema.report import (
    CaptureInfo,
    Environment,
    ExpertsBalance,
    LiveRates,
    SamplingSettings,
    Weights,
)

PROTOCOL_VERSION = 2
HEARTBEAT_S = 1.0

WorkerState = Literal["loading", "building", "running", "capturing", "paused", "failed"]


class Settings(Struct, frozen=True):
    """The model and the workload: the part of a `WorkerConfig` that can change while the worker
    runs; None as there."""

    batch: int
    tokens: int
    model: str | None = None
    context: int | None = None
    prompt: str | None = None
    prompt_ids: tuple[int, ...] | None = None
    sampling: SamplingSettings | None = None


class WorkerConfig(Settings, frozen=True, kw_only=True):
    """The model, variant and workload to decode; `run` uses it too. The worker reads it from a JSON
    file.

    None leaves the choice to the process that imports torch: `model` is llama-3.2-1b@random on CUDA
    and tiny on the CPU, `device` is CUDA if available, `dtype` bf16 on CUDA and fp32 on the CPU,
    `context` the prompt's length, or 128 without a prompt. Without `sampling`, or at temperature 0,
    decoding is greedy. Captured windows are written below `trace_dir`; if it is empty, the app's
    link makes a temporary folder.
    """

    variant: str
    dtype: str | None = None
    device: str | None = None
    trace_dir: str = ""
    trust_remote_code: bool = False


def settings_of(config: WorkerConfig) -> Settings:
    return Settings(**{name: getattr(config, name) for name in Settings.__struct_fields__})


def with_settings(config: WorkerConfig, settings: Settings) -> WorkerConfig:
    return msgspec.structs.replace(config, **msgspec.structs.asdict(settings))


class ModelInfo(Struct, frozen=True):
    """A model that can be chosen by name. `parameters` counts its weights."""

    name: str
    summary: str
    parameters: int


class VariantInfo(Struct, frozen=True):
    """A selectable variant; `unavailable` is the reason why it cannot run here, or None. If
    `interpreted`, it runs only in Triton's interpreter here."""

    name: str
    summary: str
    unavailable: str | None = None
    interpreted: bool = False


class Hello(Struct, frozen=True, tag="hello"):
    """The running variant and its machine: the first message after loading, and sent again when the
    settings have changed.

    `gpu_uuid` identifies the worker's GPU to NVML; None on the CPU. `settings` are what was asked
    for, with the model's name; None in recordings of version 1.
    """

    protocol: int
    pid: int
    device: str
    device_name: str
    model: str
    weights: Weights
    dtype: str
    batch: int
    context: int
    tokens: int
    variants: tuple[VariantInfo, ...]
    measured_peak_bytes_per_s: float | None
    datasheet_peak_bytes_per_s: float | None
    environment: Environment
    sampling: SamplingSettings | None = None
    models: tuple[ModelInfo, ...] = ()
    settings: Settings | None = None
    gpu_uuid: str | None = None


class Progress(Struct, frozen=True, tag="progress"):
    """The slow stage in progress ("importing torch", "loading weights", "compiling")."""

    stage: str
    detail: str = ""


class State(Struct, frozen=True, tag="state"):
    state: WorkerState
    variant: str


class Stats(Struct, frozen=True, tag="stats"):
    """Figures over the unprofiled steps of about the last second; only the latest matters.

    `tokens` counts all sequences since the worker started, `position` is the KV-cache length,
    `round` counts generations since the variant was built (each starts again at the prompt), and
    `text` is the tail of sequence 0 of this round ("" without a tokenizer). An interpreted variant
    has no rates. `balance` is that of a mixture whose variant shows its router's choices.
    """

    seq: int
    dropped: int
    variant: str
    tokens: int
    position: int
    round: int
    steps: int
    tokens_per_s: float | None
    step_p50_ns: int | None
    step_p99_ns: int | None
    bytes_per_step: int
    text: str
    balance: ExpertsBalance | None = None

    @property
    def rates(self) -> LiveRates | None:
        """The rates, None of an interpreted variant."""
        if self.tokens_per_s is None or self.step_p50_ns is None or self.step_p99_ns is None:
            return None
        return LiveRates(self.tokens_per_s, self.step_p50_ns, self.step_p99_ns)


class Heartbeat(Struct, frozen=True, tag="alive"):
    """Sent every `HEARTBEAT_S` while nothing else is: paused, or without a variant."""


class Meters(Struct, frozen=True, tag="meters"):
    """The meters of the worker's GPU as NVML reads them; None for those that it does not report.

    `utilization_percent` is the share of the time in which a kernel ran. `throttle` names the
    reasons why the clock is below what was asked for; a GPU that idles is not throttled.
    """

    power_w: float | None = None
    power_limit_w: float | None = None
    sm_clock_mhz: int | None = None
    temperature_c: int | None = None
    memory_used_bytes: int | None = None
    memory_total_bytes: int | None = None
    utilization_percent: int | None = None
    throttle: tuple[str, ...] = ()


class TraceReady(Struct, frozen=True, tag="trace"):
    """A captured window is at `path` as uncompressed Kineto JSON; `requested` by a user or not."""

    path: str
    capture: CaptureInfo
    requested: bool


class Log(Struct, frozen=True, tag="log"):
    level: Literal["info", "warning", "error"]
    text: str


class Failure(Struct, frozen=True, tag="failure"):
    """An error; the worker continues (paused) unless `fatal`."""

    message: str
    exit_code: int
    fatal: bool


class Bye(Struct, frozen=True, tag="bye"):
    reason: str


WorkerMessage = (
    Hello | Progress | State | Stats | Heartbeat | Meters | TraceReady | Log | Failure | Bye
)


class SwitchVariant(Struct, frozen=True, tag="switch"):
    variant: str


class Pause(Struct, frozen=True, tag="pause"):
    pass


class Resume(Struct, frozen=True, tag="resume"):
    pass


class CaptureTrace(Struct, frozen=True, tag="capture"):
    """Capture one window now; it is announced with `TraceReady(requested=True)`."""


class StepOnce(Struct, frozen=True, tag="step"):
    """While paused: run one decode step, then send its figures. Ignored while running."""


class ChangeSettings(Struct, frozen=True, tag="settings"):
    """Continue with other settings: answered by a `Hello`, or by a `Failure` that is not fatal,
    after which what ran before runs on."""

    settings: Settings


class Quit(Struct, frozen=True, tag="quit"):
    pass


AppMessage = SwitchVariant | Pause | Resume | StepOnce | CaptureTrace | ChangeSettings | Quit


MAX_FRAME_BYTES = 64 * 1024 * 1024
_LENGTH = struct.Struct(">I")
_encoder = msgspec.msgpack.Encoder()


def encode_frame(message: Struct) -> bytes:
    """One message as a length-prefixed frame."""
    body = _encoder.encode(message)
    return _LENGTH.pack(len(body)) + body


class FrameDecoder:
    """Turns a byte stream into the messages of one direction, however it is chunked.

    Raises `InputError` for a frame over `MAX_FRAME_BYTES` or one that is not such a message.
    """

    def __init__(self, union: object) -> None:
        self._decoder: msgspec.msgpack.Decoder[object] = msgspec.msgpack.Decoder(union)
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[object]:
        """Append `data` and return the messages it completes, in order."""
        self._buffer += data
        messages = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > MAX_FRAME_BYTES:
                raise InputError(f"worker protocol: a frame of {length} bytes is over the limit")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            try:
                messages.append(self._decoder.decode(body))
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise InputError(f"worker protocol: unreadable message ({error})") from error
        return messages
