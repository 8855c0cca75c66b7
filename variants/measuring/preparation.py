"""Turns a `WorkerConfig` into what a run starts with: device, workload, model and prompts."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import perf_counter_ns

import msgspec
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.analyzer.text.formatting import bytes_size
from decodescope.variants.machine.memory import (
    free_gpu_bytes,
    free_host_bytes,
    free_memory,
    memory_errors,
)
from decodescope.variants.machine.read_peak import ReadPeak
from decodescope.variants.measuring.request import Request, read_request
from decodescope.variants.measuring.window import Subject
from decodescope.variants.model.loading import LoadedModel, check_fits, load_model
from decodescope.variants.model.prompts import make_prompt
from decodescope.variants.model.quantized_weights import quantization_of
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.skeleton import find_files, require_loadable
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import require_memory
from decodescope.variants.parallel.ranks import ALONE, Ranks
from decodescope.variants.registry import find_variant, require_runnable

# Loading takes more than the weights for a while.
_ROOM = 1.25


@dataclass(frozen=True, slots=True)
class Prepared:
    """A model on its device and the workload it will decode. `load_ns`: how long loading took."""

    config: WorkerConfig
    device: str
    loaded: LoadedModel
    workload: DecodeWorkload
    load_ns: int | None = None

    def prompt(self, round: int) -> torch.Tensor:
        """Prompt ids of generation `round`, int64 [batch, context], on the CPU.

        A prompt given by the user is the same in every round.
        """
        return make_prompt(
            self.loaded, self.workload, self.config.prompt, self.config.prompt_ids, round
        )

    def subject(
        self, variant: str, read_peak: ReadPeak | None, kernel_floor_ns: int | None
    ) -> Subject:
        return Subject(self.loaded, self.workload, self.device, variant, read_peak, kernel_floor_ns)


def prepare(config: WorkerConfig, say: Callable[[str], None], ranks: Ranks = ALONE) -> Prepared:
    """Choose the device, check the request and load the model, of several `ranks` the part of this
    one; `say` is called for slow stages.

    The weights are as they were loaded: `require_weights` quantises them. The returned `config`
    has the variant's own name. Everything that can be checked without the weights is checked before
    they are loaded.

    Raises:
        InputError, ModelError, MissingRequirement: as `read_request`, `load_model`,
            `make_prompt` and `check_fits`.
        DecodescopeError: the variant's check rejects the model or workload.
    """
    request = read_request(config)
    device, source, workload = request.device, request.source, request.workload
    say(f"loading {source.name}")
    started_ns = perf_counter_ns()
    files = find_files(source)
    require_loadable(source, files, config.trust_remote_code, workload)
    _check_variant(request, files.config)
    loaded = load_model(
        source,
        device,
        workload.dtype,
        config.trust_remote_code,
        workload,
        request.variant.spec,
        files,
        ranks,
        config.ep,
        request.variant.check_model,
    )
    load_ns = perf_counter_ns() - started_ns
    return _prepared(config, request, loaded, load_ns)


def check_change(prepared: Prepared, config: WorkerConfig) -> None:
    """Check all of `config` that can be checked beside a `prepared` that is in use: not memory, nor
    a hub model's weights. Raises as `prepare`.
    """
    request = read_request(config)
    if _same_weights(prepared, request):
        workload = _with_prompt(config, request.workload, prepared.loaded)
        check_fits(prepared.loaded, workload)
        require_runnable(request.variant.name, prepared.loaded, workload, request.device)
    else:
        _check_variant(request, find_files(request.source).config)


def prepare_again(prepared: Prepared, config: WorkerConfig, say: Callable[[str], None]) -> Prepared:
    """As `prepare(config)`, but a model that stays the same is not loaded again.

    While another model is loaded the old one is kept, if there is room for both. If loading fails,
    `prepared` can still be used: `require_weights` loads what was freed. Raises as `prepare`.
    """
    request = read_request(config)
    if _same_weights(prepared, request):
        return _prepared(config, request, prepared.loaded, prepared.load_ns)
    try:
        other = prepare(config, say, prepared.loaded.ranks)
    except MissingRequirement:
        _free_weights(prepared.loaded, prepared.device)
        return prepare(config, say, prepared.loaded.ranks)
    _free_weights(prepared.loaded, prepared.device)
    return other


def _same_weights(prepared: Prepared, request: Request) -> bool:
    loaded, workload = prepared.loaded, prepared.workload
    return (loaded.name, workload.dtype) == (request.source.name, request.workload.dtype)


def _check_variant(request: Request, fields: Mapping[str, object]) -> None:
    if request.variant.check is not None:
        request.variant.check(request.source.name, fields, request.workload, request.device)


def _with_prompt(
    config: WorkerConfig, workload: DecodeWorkload, loaded: LoadedModel
) -> DecodeWorkload:
    if config.prompt is None and config.prompt_ids is None:
        return workload
    ids = make_prompt(loaded, workload, config.prompt, config.prompt_ids)
    return replace(workload, context=ids.shape[1])


def _prepared(
    config: WorkerConfig, request: Request, loaded: LoadedModel, load_ns: int | None
) -> Prepared:
    workload = _with_prompt(config, request.workload, loaded)
    check_fits(loaded, workload)
    require_memory(loaded.name, loaded.model, workload, request.device, 0, request.variant.spec)
    config = msgspec.structs.replace(config, variant=request.variant.name)
    return Prepared(config, request.device, loaded, workload, load_ns)


def require_weights(prepared: Prepared, variant: str, say: Callable[[str], None]) -> Prepared:
    """`prepared` with the model's weights stored as `variant` needs them: quantised, or as they
    were loaded.

    Weights as they were loaded are quantised in place. Once they are, they come back only by
    loading the model again. Until that is done the old weights are kept, if there is room for both;
    then they are freed, whoever holds `prepared`. `say` is called for slow stages.

    Raises:
        InputError, ModelError, MissingRequirement: as `find_variant`, `load_model` and
            `quantize_model`, or memory ran out. `prepared` can be used again.
    """
    quantization = quantization_of(find_variant(variant).spec)
    if not prepared.loaded.can_store(quantization):
        prepared = _loaded_again(prepared, say)
    if quantization is not None:
        name, model = prepared.loaded.name, prepared.loaded.model
        with memory_errors(f"quantising {name} to {quantization.format}", prepared.device):
            quantize_model(name, model, quantization, say)
    return prepared


def _loaded_again(prepared: Prepared, say: Callable[[str], None]) -> Prepared:
    old, device, dtype = prepared.loaded, prepared.device, prepared.workload.dtype
    free_bytes = free_gpu_bytes() if device == "cuda" else free_host_bytes()
    if free_bytes is not None and free_bytes < _ROOM * old.weight_bytes:
        _free_weights(old, device)
    before = f", {prepared.load_ns / 1e9:.0f} s at first" if prepared.load_ns is not None else ""
    say(f"loading the {dtype} weights again ({bytes_size(old.weight_bytes)}{before})")
    started_ns = perf_counter_ns()
    source = read_request(prepared.config).source
    config = prepared.config
    loaded = load_model(
        source, device, dtype, config.trust_remote_code, ranks=old.ranks, ep=config.ep
    )
    load_ns = perf_counter_ns() - started_ns
    _free_weights(old, device)
    say(f"loaded the {dtype} weights again in {load_ns / 1e9:.1f} s")
    return replace(prepared, loaded=loaded, load_ns=load_ns)


def _free_weights(loaded: LoadedModel, device: str) -> None:
    """Leave the model without memory, which `LoadedModel.can_store` sees."""
    loaded.model.to("meta")
    free_memory(device)
