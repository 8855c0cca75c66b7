"""Loads a model: safetensors from the hub or a folder, or a preset with random weights."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.schema.report import Finding, Weights
from decodescope.kernels.host.packing import Packing
from decodescope.variants.machine.memory import memory_errors, return_freed
from decodescope.variants.model.checkpoint import (
    StoredTensor,
    broken_checkpoint,
    holds_quantized,
    in_one_line,
    model_tensors,
    quiet_transformers,
    require_complete,
    require_decoding,
    require_finite,
    require_shapes,
    require_types,
)
from decodescope.variants.model.experts import require_experts, set_prompt_way
from decodescope.variants.model.gguf_file import gguf_tensors
from decodescope.variants.model.hub import fetch_weights
from decodescope.variants.model.quantized_weights import (
    Quantization,
    Stored,
    converting_with,
    quantized_formats,
    scaled,
    untie,
    weight_tensors,
)
from decodescope.variants.model.quantizing import is_quantized
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.skeleton import (
    ModelFiles,
    build_skeleton,
    find_files,
    require_loadable,
    require_positions,
    torch_dtype,
)
from decodescope.variants.model.source import ModelSource
from decodescope.variants.model.stored_quantization import (
    declares_quantization,
    unsupported_quantization,
)
from decodescope.variants.model.tensor_reader import TensorReader
from decodescope.variants.model.workload import DecodeWorkload, DType
from decodescope.variants.model.workload_costs import model_bytes, require_memory
from decodescope.variants.parallel.cuts import split_of
from decodescope.variants.parallel.ranks import ALONE, Ranks
from decodescope.variants.parallel.shard import shard_model
from decodescope.variants.spec import VariantSpec

if TYPE_CHECKING:
    from decodescope.variants.model.quantized_loading import QuantizedCheckpoint

# Elements of 4 bits that a check on a CPU unpacks at once.
_FEW = 1 << 18
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "vocab.json")


@dataclass(frozen=True, slots=True)
class LoadedModel:
    """A causal language model on its device, in evaluation mode, without gradients.

    `tokenizer` is None if the checkpoint has none, and for random weights. `max_context` is the
    number of positions the model allows, None if its configuration sets no limit. `findings` are
    what is unusual about the checkpoint. `formats` are the quantised matrices as they were loaded,
    and `weight_bytes` the bytes of all weights: a variant may have quantised others since. Of
    several `ranks`, the model holds the part of this one.
    """

    model: Any
    tokenizer: Any | None
    weights: Weights
    name: str
    max_context: int | None
    findings: tuple[Finding, ...] = ()
    formats: Mapping[str, Stored] = field(default_factory=dict)
    weight_bytes: int = 0
    ranks: Ranks = ALONE

    def can_store(self, quantization: Quantization | None) -> bool:
        """Whether the weights are stored so (None: as loaded), or can be made so from what is
        there: quantising frees what it quantises."""
        if self.model.device.type == "meta":
            return False
        if quantized_formats(self.model) == self.formats:
            return True
        return quantization is not None and is_quantized(self.model, quantization)

    def with_own_modules(self) -> "LoadedModel":
        """The same weights, without a copy, in modules that are copies: a variant may replace them,
        while others keep theirs."""
        shared = (*weight_tensors(self.model), *self.model.buffers())
        return replace(self, model=deepcopy(self.model, {id(tensor): tensor for tensor in shared}))

    @property
    def decode(self) -> Callable[[list[int]], str] | None:
        """Turns token ids into text; None without a tokenizer."""
        if self.tokenizer is None:
            return None
        return partial(self.tokenizer.decode, clean_up_tokenization_spaces=False)

    @property
    def vocab_size(self) -> int:
        """Number of tokens; the embedding table may have more rows."""
        return int(self.model.config.get_text_config(decoder=True).vocab_size)


def load_model(
    source: ModelSource,
    device: str,
    dtype: DType,
    trust_remote_code: bool = False,
    workload: DecodeWorkload | None = None,
    spec: VariantSpec | None = None,
    files: ModelFiles | None = None,
    ranks: Ranks = ALONE,
    ep: bool = False,
    check_model: Callable[[Any], None] | None = None,
) -> LoadedModel:
    """Load `source` onto `device` in `dtype`; of several `ranks` the part of this one, with whole
    experts if `ep` (`shard_model`).

    Only safetensors are read; a checkpoint's own Python code runs only with `trust_remote_code`.
    8-bit matrices of a checkpoint stay as they are, whatever `dtype`.
    `spec` is the variant that will decode: its need of memory is checked. `check_model` is called
    with the model without memory, its matrices in the formats of the checkpoint, and raises a
    `ModelError` for what the variant cannot read. `files` are those of `find_files`, which is
    called if they are not given. Random weights are those of `build_random`.

    Raises:
        ModelError: an unreadable or incomplete checkpoint, weights that are not finite, no causal
            language model with a KV cache, fewer positions than `workload` needs, or a model that
            cannot be split over `ranks`.
        InputError: a checkpoint that needs custom code, without `trust_remote_code`.
        MissingRequirement: not found, no network and not cached, or `workload` does not fit in
            memory. As all that needs no weights, it is found before any are loaded.
    """
    with memory_errors(f"loading {source.name} in {dtype}", device), quiet_transformers():
        files = files or find_files(source)
        require_loadable(source, files, trust_remote_code, workload)
        # First of all, because transformers says less of a broken quantization_config.
        declared = declares_quantization(files.config)
        skeleton = build_skeleton(source, files, torch_dtype(dtype), trust_remote_code)
        quantized = None
        if source.is_local:
            tensors = local_tensors(source, skeleton)
            quantized = _check_files(source, files, skeleton, tensors, ranks)
        part = _part(source.name, skeleton, ranks, ep)
        if workload is not None:
            # Which matrices of a hub model have 8 bits is known when its weights are here.
            weight_bytes, counted_spec = model_bytes(part), spec
            if declared and source.hub_id is not None:
                weight_bytes = 0
                counted_spec = spec and replace(
                    spec, weight_format=None, head16=False, embedding_bits=None
                )
            decoder = _decoder(files, part)
            require_memory(source.name, decoder, workload, device, weight_bytes, counted_spec)
        if source.kind == "random":
            assert source.preset is not None
            model = build_random(source.preset.config, device, torch_dtype(dtype), ranks, ep)
            return loaded_model(model, None, "random", source.name)
        if source.hub_id is not None:
            folder = fetch_weights(source.hub_id, files.cached_only)
            tensors = model_tensors(folder, skeleton)
            quantized = _check_files(source, files, skeleton, tensors, ranks)
            part = _part(source.name, skeleton, ranks, ep)
            if quantized is not None and workload is not None:
                decoder, weight_bytes = _decoder(files, part), model_bytes(part)
                require_memory(source.name, decoder, workload, device, weight_bytes, spec)
        if check_model is not None:
            check_model(_decoder(files, part))
        return _load_checkpoint(source, files, part, quantized, device, trust_remote_code)


def _part(name: str, skeleton: Any, ranks: Ranks, ep: bool) -> Any:
    """This rank's part of a model without memory."""
    if ranks.alone:
        return skeleton
    part = deepcopy(skeleton)
    shard_model(part, ranks, ep, name)
    return part


def _decoder(files: ModelFiles, model: Any) -> Any:
    """`model`, or the text decoder in it."""
    if "text_config" not in files.config:
        return model
    from decodescope.variants.model.text_decoder import text_decoder

    return text_decoder(model)


def check_fits(loaded: LoadedModel, workload: DecodeWorkload) -> None:
    """Raise `ModelError` if prompt and new tokens need more positions than the model allows."""
    require_positions(loaded.name, loaded.max_context, workload)


def loaded_model(
    model: Any,
    tokenizer: Any | None,
    weights: Weights,
    name: str,
    findings: tuple[Finding, ...] = (),
) -> LoadedModel:
    """`model` in evaluation mode, without gradients, and what the others need to know of it."""
    model.eval().requires_grad_(False)
    if getattr(model.config, "attn_logit_softcapping", None) is not None:
        # PyTorch's attention has no soft cap; some releases of transformers leave it out silently.
        model.set_attn_implementation("eager")
    limit = getattr(model.config.get_text_config(decoder=True), "max_position_embeddings", None)
    formats = quantized_formats(model)
    held, ranks = model_bytes(model), split_of(model).ranks
    return LoadedModel(model, tokenizer, weights, name, limit, findings, formats, held, ranks)


def local_tensors(source: ModelSource, skeleton: Any) -> dict[str, StoredTensor]:
    """The tensors of a folder or a GGUF file, by their names in the model `skeleton`. Raises as
    `model_tensors` and `gguf_tensors`."""
    if source.gguf is not None:
        return gguf_tensors(source.gguf, skeleton)
    assert source.folder is not None
    return model_tensors(source.folder, skeleton)


def _check_files(
    source: ModelSource,
    files: ModelFiles,
    skeleton: Any,
    tensors: Mapping[str, StoredTensor],
    ranks: Ranks,
) -> "QuantizedCheckpoint | None":
    """Compare a checkpoint's tensors with `skeleton`; the checkpoint, if it is loaded tensor by
    tensor: because of matrices of 8 and 4 bits, which are loaded as they are, or because ranks load
    parts."""
    from decodescope.variants.model.quantized_loading import QuantizedCheckpoint, find_quantized

    if (reason := unsupported_quantization(files.config)) is not None:
        if not ranks.alone:
            raise ModelError(f"{source.name}: ranks cannot load {reason}; run it without --tp")
        # transformers may know the method. Its tensors are packed, with other shapes.
        return None
    checkpoint = None if ranks.alone else QuantizedCheckpoint(tensors, plain=True)
    if holds_quantized(files.config, tensors):
        # Before the shapes are compared, because packed weights have other shapes too.
        with broken_checkpoint(source.name):
            checkpoint = find_quantized(source.name, files.config, skeleton, tensors)
    require_shapes(source.name, skeleton, tensors)
    if source.gguf is None:
        require_types(source.name, skeleton, tensors)
        _untie_other_head(skeleton, tensors)
    shapes = {key: stored.shape for key, stored in tensors.items()}
    require_experts(source.name, skeleton, shapes)
    return checkpoint


def _untie_other_head(skeleton: Any, tensors: Mapping[str, StoredTensor]) -> None:
    """Give a head that config.json ties to the embedding table a weight of its own if the
    checkpoint stores another, as transformers does."""
    for name, table in tuple(skeleton.all_tied_weights_keys.items()):
        if name in tensors and table in tensors:
            with TensorReader(tensors, "cpu") as reader:
                if reader.equal(name, table, skeleton.dtype):
                    continue
            path = name.removesuffix(".weight")
            head = skeleton.get_submodule(path)
            head.weight = nn.Parameter(torch.empty_like(head.weight), requires_grad=False)
            untie(skeleton, path)


def _load_checkpoint(
    source: ModelSource,
    files: ModelFiles,
    skeleton: Any,
    quantized: "QuantizedCheckpoint | None",
    device: str,
    trust_remote_code: bool,
) -> LoadedModel:
    options = {"trust_remote_code": trust_remote_code, "local_files_only": files.cached_only}
    with broken_checkpoint(source.name, unsupported_quantization(files.config)):
        if quantized is not None:
            from decodescope.variants.model.quantized_loading import load_quantized

            model, findings = skeleton, load_quantized(source.name, skeleton, quantized, device)
        else:
            model, info = AutoModelForCausalLM.from_pretrained(
                files.location,
                dtype=skeleton.dtype,
                use_safetensors=True,
                # In place of generation_config.json: `generate` is not called.
                generation_config=GenerationConfig(),
                # `require_complete` names them.
                ignore_mismatched_sizes=True,
                output_loading_info=True,
                **options,
            )
            findings = require_complete(source.name, info)
            model = model.to(device)
    model = _decoder(files, model)
    set_prompt_way(model)
    require_finite(source.name, model)
    with converting_with(scaled if device == "cuda" else _scaled_in_parts, model):
        require_decoding(source.name, model)
    return_freed(device)
    tokenizer = _load_tokenizer(source, files, options)
    weights: Weights = "bundled" if source.kind == "tiny" else "pretrained"
    return loaded_model(model, tokenizer, weights, source.name, findings)


def _scaled_in_parts(
    data: torch.Tensor, scale: torch.Tensor | None, dtype: torch.dtype, packing: Packing | None
) -> torch.Tensor:
    """`scaled` for a check on a CPU. It frees blocks between those in use, in which not every later
    one fits: what is left of them would add to the memory that loading takes."""
    weights = scaled(data, scale, dtype, packing, at_once=_FEW)
    return_freed("cpu")
    return weights


def _load_tokenizer(source: ModelSource, files: ModelFiles, options: dict[str, Any]) -> Any | None:
    folder = source.folder
    if source.gguf is not None:
        options = options | {"gguf_file": source.gguf.name}
    if folder is not None and not any((folder / file).is_file() for file in _TOKENIZER_FILES):
        return None
    try:
        return AutoTokenizer.from_pretrained(files.location, **options)
    except Exception as error:  # as above; a hub model without tokenizer files also fails here
        if folder is None:
            return None
        raise ModelError(
            f"{source.name}: its tokenizer cannot be loaded ({in_one_line(error)})"
        ) from error
