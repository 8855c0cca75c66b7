"""A loaded model, and what the live loop does with it."""

import os
from collections.abc import Callable
from pathlib import Path

import torch
from msgspec.structs import replace

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.protocol.messages import (
    PROTOCOL_VERSION,
    Hello,
    Settings,
    VariantInfo,
    WorkerConfig,
    settings_of,
    with_settings,
)
from decodescope.analyzer.roofline.peaks import datasheet_peak_bytes_per_s
from decodescope.analyzer.schema.graph_reference import GraphReference
from decodescope.analyzer.schema.report import CaptureInfo
from decodescope.variants.machine.environment import device_name, environment, gpu_uuid
from decodescope.variants.machine.memory import free_memory, memory_errors
from decodescope.variants.machine.read_peak import ReadPeak, read_peak
from decodescope.variants.measuring.measure import step_pacer
from decodescope.variants.measuring.preparation import (
    Prepared,
    check_change,
    prepare,
    prepare_again,
    require_weights,
)
from decodescope.variants.measuring.window import (
    Subject,
    WindowPlan,
    capture_info,
    capture_window,
    try_reference,
)
from decodescope.variants.model.source import offered_models
from decodescope.variants.parallel.exchange import from_rank_0
from decodescope.variants.parallel.ranks import ALONE, Ranks
from decodescope.variants.registry import (
    available_variants,
    build_variant,
    is_interpreted,
    require_runnable,
)
from decodescope.variants.steps.decode_step import DecodeStep


class TorchSession:
    """A prepared model with its profiler, step pacer and token tap."""

    def __init__(
        self, prepared: Prepared, profiler: ProfilerSession, peak: ReadPeak | None
    ) -> None:
        self._prepared = prepared
        self._profiler = profiler
        self._read_peak = peak
        self._reference: GraphReference | None = None
        self._device_name = device_name(prepared.device)
        self.pacer = step_pacer(prepared.device)
        self.tap = TokenTap(prepared.device)

    @property
    def batch(self) -> int:
        return self._prepared.workload.batch

    @property
    def new_tokens(self) -> int:
        return self._prepared.workload.new_tokens

    @property
    def decode(self) -> Callable[[list[int]], str] | None:
        return self._prepared.loaded.decode

    @property
    def settings(self) -> Settings:
        return replace(settings_of(self._prepared.config), model=self._prepared.loaded.name)

    @property
    def variant(self) -> str:
        return self._prepared.config.variant

    def prompt(self, generation: int) -> torch.Tensor:
        """Prompt ids of a generation, int64 [batch, context], on the CPU."""
        return self._prepared.prompt(generation)

    def hello(self) -> Hello:
        """The run's description for the app, sent at the start and after a change of settings."""
        prepared = self._prepared
        on_cuda = prepared.device == "cuda"
        return Hello(
            protocol=PROTOCOL_VERSION,
            pid=os.getpid(),
            device=prepared.device,
            device_name=self._device_name,
            model=prepared.loaded.name,
            weights=prepared.loaded.weights,
            dtype=prepared.workload.dtype,
            batch=self.batch,
            context=prepared.workload.context,
            tokens=self.new_tokens,
            variants=tuple(map(self._offered, available_variants(prepared.device))),
            measured_peak_bytes_per_s=self._read_peak.bytes_per_s if self._read_peak else None,
            datasheet_peak_bytes_per_s=(
                datasheet_peak_bytes_per_s(self._device_name) if on_cuda else None
            ),
            environment=environment(),
            sampling=prepared.workload.sampling,
            models=offered_models(),
            settings=self.settings,
            gpu_uuid=gpu_uuid() if on_cuda else None,
            tp=prepared.loaded.ranks.size,
            ep=prepared.config.ep,
        )

    def check(self, settings: Settings, variant: str) -> None:
        """As `check_change`, of `settings` and `variant`."""
        check_change(self._prepared, self._changed(settings, variant))

    def adopt(self, settings: Settings, variant: str, say: Callable[[str], None]) -> None:
        """As `prepare_again`; after an error the settings stay as they were."""
        config = self._changed(settings, variant)
        self._prepared = prepare_again(self._prepared, config, say)

    def refusal(self, variant: str) -> DecodescopeError | None:
        """Why `variant` cannot be built for this model on this device; None if it can."""
        prepared = self._prepared
        try:
            require_runnable(variant, prepared.loaded, prepared.workload, prepared.device)
        except DecodescopeError as error:
            return error
        return None

    def interprets(self, variant: str) -> bool:
        """Whether Triton's interpreter runs the variant: its tokens count, its times do not."""
        return is_interpreted(variant, self._prepared.device)

    def build(self, variant: str, say: Callable[[str], None]) -> DecodeStep:
        """The variant's step, ready to prefill; `say` is called for each slow stage.

        Quantises the weights, or loads them again, as the variant needs them.
        """
        self._prepared = prepared = require_weights(self._prepared, variant, say)
        say("building")
        step = build_variant(variant, prepared.loaded, prepared.workload, prepared.device)
        self._reference = try_reference(
            step, self._subject(variant), prepared.prompt(0), self._profiler, say
        )
        return step

    def release(self) -> None:
        free_memory(self._prepared.device)

    def explain(self, error: Exception) -> DecodescopeError | None:
        """A step's error for the user, if it is ours or out of memory; None for any other."""
        try:
            with memory_errors("decoding", self._prepared.device):
                raise error
        except DecodescopeError as known:
            return known
        except Exception:
            return None

    def capture(
        self,
        variant: str,
        step: DecodeStep,
        plan: WindowPlan,
        unprofiled_step_ns: int | None,
        path: Path,
    ) -> CaptureInfo:
        """Profile the window that `step` runs next, and write it to `path`.

        The tap gets the ids of its steps.

        Raises:
            InputError: `path` cannot be written.
        """
        info = capture_info(self._subject(variant), step, plan, unprofiled_step_ns)
        capture_window(step, plan, info, path, self._profiler, self._reference, self.tap.add)
        return info

    def _changed(self, settings: Settings, variant: str) -> WorkerConfig:
        return replace(with_settings(self._prepared.config, settings), variant=variant)

    def _offered(self, info: VariantInfo) -> VariantInfo:
        if info.unavailable is None and (refusal := self.refusal(info.name)):
            return replace(info, unavailable=str(refusal))
        return info

    def _subject(self, variant: str) -> Subject:
        return self._prepared.subject(variant, self._read_peak, self._profiler.kernel_floor_ns)


def open_session(
    config: WorkerConfig, say: Callable[[str], None], ranks: Ranks = ALONE
) -> TorchSession:
    """Load the model, start the profiler and measure the GPU's read peak. Raises as `prepare`."""
    prepared = prepare(config, say, ranks)
    say("starting the profiler")
    profiler = ProfilerSession(prepared.device)
    profiler.warm_up()
    say("measuring the read peak")
    # Ranks may share a GPU, and it is measured alone.
    measured = read_peak() if prepared.device == "cuda" and not ranks.rank else None
    peak = from_rank_0(measured, ranks)
    return TorchSession(prepared, profiler, peak)


class TokenTap:
    """Collects the id tensors that steps return, and copies them to the host together.

    On "cuda" `exchange()` starts an asynchronous copy into pinned memory and returns the ids of the
    previous copy, so it never synchronises. On "cpu" it returns all ids at once.
    """

    def __init__(self, device: str) -> None:
        self._asynchronous = device.startswith("cuda")
        self._ids: list[torch.Tensor] = []
        self._arriving: tuple[torch.Tensor, torch.cuda.Event] | None = None
        self.add = self._ids.append

    def exchange(self) -> list[int]:
        """Ids of sequence 0 that have arrived since the last call, oldest first."""
        if not self._asynchronous:
            return self._fetch()
        if self._arriving is not None and not self._arriving[1].query():  # type: ignore[no-untyped-call]
            return []
        arrived = self._arrived()
        if self._ids:
            column = self._column()
            host = torch.empty(column.shape, dtype=column.dtype, pin_memory=True)
            host.copy_(column, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
            self._arriving = (host, done)
            self._ids.clear()
        return arrived

    def finish(self) -> list[int]:
        """Wait for all ids that were not returned yet; returns them, oldest first."""
        return self._arrived() + self._fetch()

    def clear(self) -> None:
        self._ids.clear()
        self._arriving = None

    def _arrived(self) -> list[int]:
        """Wait for the copy that is on its way, if any."""
        if self._arriving is None:
            return []
        host, done = self._arriving
        self._arriving = None
        done.synchronize()
        ids: list[int] = host.tolist()
        return ids

    def _fetch(self) -> list[int]:
        ids: list[int] = self._column().tolist() if self._ids else []
        self._ids.clear()
        return ids

    def _column(self) -> torch.Tensor:
        return torch.stack(self._ids)[:, 0]
