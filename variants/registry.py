"""The variants that can be built: ours, and those of installed packages.

A package adds one by an entry point of the group `decodescope.variants` that names a `Variant`.
Importing this module, and listing the variants, loads no torch: builders import what they need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from typing import TYPE_CHECKING, Any

from decodescope.analyzer.errors import (
    VARIANTS_GROUP,
    DecodescopeError,
    InputError,
    MissingRequirement,
    ModelError,
    first_line,
)
from decodescope.analyzer.protocol.messages import VariantInfo
from decodescope.variants.machine.environment import interpreting
from decodescope.variants.spec import (
    KERNELS,
    LOADED_FORMATS,
    NARROW_WEIGHTS,
    PARTS,
    AllReduce,
    VariantSpec,
    kernels_of,
    nearest_or_all,
)

if TYPE_CHECKING:
    from decodescope.variants.model.loading import LoadedModel
    from decodescope.variants.model.workload import DecodeWorkload
    from decodescope.variants.steps.decode_step import DecodeStep

SHORT_NAMES = {
    "fp8": "fused+graph+fp8_e4m3",
    "int8": "fused+graph+int8",
    "w8a8": "fused+graph+w8a8",
    "int4": "fused+graph+int4",
    "mxfp4": "fused+graph+mxfp4",
    "nvfp4": "fused+graph+nvfp4",
}

_ALL_REDUCES: dict[AllReduce, str] = {
    "torch": "torch.distributed",
    "one_shot": "symmetric memory, one-shot",
    "two_shot": "symmetric memory, two-shot",
    "none": "left out, so tokens are wrong",
}

Builder = Callable[["LoadedModel", "DecodeWorkload", str], "DecodeStep"]
Check = Callable[[str, Mapping[str, object], "DecodeWorkload", str], None]
ModelCheck = Callable[[Any], None]


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to compute a decode step. `build(loaded, workload, device)` returns it ready to
    prefill, with everything compiled and captured.

    `spec`: what `name` stands for, if that is a combination of our kernels. The model's weights are
    stored as it says when `build` is called; as they were loaded, without one.
    `check(name, config, workload, device)` raises a `DecodescopeError` for what it cannot run:
    `name` is the model's, `config` its config.json. `check_model(model)` raises one for a
    transformers model without memory, its matrices in the formats of the checkpoint. Both run
    before weights are loaded. If `interpretable`, Triton's interpreter runs it on the CPU, though
    it requires CUDA. `missing()` says what has to be installed for it, None if nothing. `splits`:
    it decodes a model of which each of several ranks holds a part.

    Raises:
        InputError: an empty name or one with blanks, no summary, or a builder that is not callable.
    """

    name: str
    summary: str
    requires_cuda: bool
    build: Builder
    check: Check | None = None
    check_model: ModelCheck | None = None
    interpretable: bool = False
    spec: VariantSpec | None = None
    missing: Callable[[], str | None] | None = None
    splits: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or self.name.split() != [self.name]:
            raise InputError(f"variant name {self.name!r}: must be one word")
        if not isinstance(self.summary, str) or len(self.summary.splitlines()) != 1:
            raise InputError(f"variant {self.name}: needs a one-line summary")
        for title in ("build", "check", "check_model"):
            function = getattr(self, title)
            if not (callable(function) or (title != "build" and function is None)):
                raise InputError(f"variant {self.name}: its {title} is not callable")


def available_variants(device: str) -> tuple[VariantInfo, ...]:
    """Every known variant, built-in ones first; `unavailable` says why one cannot run on `device`.

    A package's entry point that fails to load is listed with the reason and hides no other.
    """
    installed, broken = _installed()

    def info(variant: Variant) -> VariantInfo:
        reason = _why_not(variant, device)
        interpreted = reason is None and variant.requires_cuda and device != "cuda"
        return VariantInfo(variant.name, variant.summary, reason, interpreted)

    return (*map(info, (*_BUILT_IN, *installed)), *broken)


def build_variant(
    name: str, loaded: LoadedModel, workload: DecodeWorkload, device: str
) -> DecodeStep:
    """The variant `name` built for this model and workload, ready to prefill.

    Raises:
        InputError: an unknown name (with the nearest known), one not built here, or a package's
            variant that builds no `DecodeStep`.
        MissingRequirement: it needs CUDA, or GPU memory ran out.
        ModelError: context and new tokens exceed what the model allows, or the model's weights were
            quantised for another variant (`measuring.preparation.require_weights`).
        DecodescopeError: as the variant's check.
    """
    variant = require_runnable(name, loaded, workload, device)

    from decodescope.variants.machine.memory import memory_errors
    from decodescope.variants.model.loading import check_fits
    from decodescope.variants.model.quantized_weights import quantization_of
    from decodescope.variants.steps.decode_step import DecodeStep

    if not loaded.can_store(quantization_of(variant.spec)):
        raise ModelError(
            f"variant {name}: the weights of {loaded.name} were quantised for another variant; "
            "load the model again"
        )
    check_fits(loaded, workload)
    with memory_errors(f"building variant {name}", device):
        step = variant.build(loaded, workload, device)
    if not isinstance(step, DecodeStep):
        raise InputError(
            f"variant {name}: its build returned a {type(step).__name__}, not a DecodeStep"
        )
    return step


def require_variant(name: str, device: str) -> Variant:
    """The variant `name`, if it can run on `device`; nothing is loaded.

    Raises:
        InputError: as `find_variant`.
        MissingRequirement: it needs CUDA, or something that is not installed.
    """
    variant = find_variant(name)
    reason = _why_not(variant, device)
    if reason is not None:
        raise MissingRequirement(f"variant {name}: {reason}; choose another variant or --device")
    return variant


def require_split(variant: Variant, tp: int) -> None:
    """Raise `InputError` if `variant` cannot decode on `tp` ranks."""
    if tp > 1 and not variant.splits:
        others = ", ".join(known.name for known in _BUILT_IN if known.splits)
        raise InputError(
            f"--tp {tp}: variant {variant.name} has no form for several ranks; choose one of "
            f"{others}"
        )


def require_runnable(
    name: str, loaded: LoadedModel, workload: DecodeWorkload, device: str
) -> Variant:
    """The variant `name`, if it can run this model and workload on `device`.

    Raises:
        InputError, MissingRequirement: as `require_variant` and `require_split`.
        DecodescopeError: as the variant's check.
    """
    variant = require_variant(name, device)
    require_split(variant, loaded.ranks.size)
    if variant.check is not None:
        variant.check(loaded.name, loaded.model.config.to_dict(), workload, device)
    return variant


def is_interpreted(name: str, device: str) -> bool:
    """Whether the variant's kernels run in Triton's interpreter on `device`, where it can run."""
    return find_variant(name).requires_cuda and device != "cuda"


def find_variant(name: str) -> Variant:
    """The variant of this name or short name, or the one that a spec string describes: a built-in
    variant, or any combination of fused kernels.

    Raises:
        InputError: unknown (with the nearest known), not built here, or its package is broken.
    """
    name = SHORT_NAMES.get(name, name)
    installed, broken = _installed()
    known = {variant.name: variant for variant in (*_BUILT_IN, *installed)}
    if name in known:
        return known[name]
    for info in broken:
        if info.name == name:
            raise InputError(f"variant {name}: {info.unavailable}")
    if kernels_of(name) not in KERNELS:
        raise InputError(f"unknown variant {name!r}{nearest_or_all(name, (*known, *SHORT_NAMES))}")
    spec = VariantSpec.parse(name)
    if str(spec) in known:
        return known[str(spec)]
    if spec.kernels == "fused":
        return _fused(spec)
    raise InputError(
        f"variant {name}: well-formed, but not built in this version; built: {', '.join(known)}"
    )


def _build_eager(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> DecodeStep:
    from decodescope.variants.steps.eager_step import EagerStep

    return EagerStep(loaded, workload)


def _build_compiled(loaded: LoadedModel, workload: DecodeWorkload, device: str) -> DecodeStep:
    from decodescope.variants.steps.compiled_step import build_compiled

    return build_compiled(loaded, workload, device)


def _build_fused(
    spec: VariantSpec, loaded: LoadedModel, workload: DecodeWorkload, device: str
) -> DecodeStep:
    from decodescope.variants.steps.fused.fused_step import build_fused

    return build_fused(spec, loaded, workload, device)


def _check_fused(
    spec: VariantSpec,
    name: str,
    config: Mapping[str, object],
    workload: DecodeWorkload,
    device: str,
) -> None:
    if spec.weight_format in LOADED_FORMATS and spec.weight_format != workload.dtype:
        raise InputError(
            f"variant {spec}: weights in {spec.weight_format}, but the run's dtype is "
            f"{workload.dtype}; pass --dtype {spec.weight_format} or leave the format out"
        )

    from decodescope.variants.model.stored_quantization import require_format
    from decodescope.variants.steps.fused.support import require_support

    require_support(name, config, workload.batch, device, spec)
    require_format(name, config, spec)


def _check_fused_model(spec: VariantSpec, model: Any) -> None:
    from decodescope.variants.steps.fused.model_parts import require_readable

    require_readable(spec, model)


def _fused(spec: VariantSpec) -> Variant:
    launches = "nine launches a layer" if spec.fp8_x else "five launches a layer (a batch: seven)"
    if (spec.weight_format or "").startswith("int4"):
        launches = "seven launches a layer"
    summary = f"our Triton kernels, {launches}"
    if left_out := [part for part in PARTS if part in spec.without]:
        summary = f"our Triton kernels without {', '.join(left_out)}"
    if spec.weight_format in NARROW_WEIGHTS:
        tensors = "weights and activations" if spec.fp8_x else "weights"
        summary += f", {tensors} in {NARROW_WEIGHTS[spec.weight_format].title}"
    if spec.kv_format is not None:
        summary += f", K and V in {NARROW_WEIGHTS[spec.kv_format].title}"
    if spec.all_reduce is not None:
        summary += f", sums over ranks: {_ALL_REDUCES[spec.all_reduce]}"
    if spec.cuda_graph:
        summary += ", replayed as one CUDA graph a token"
    for short, name in SHORT_NAMES.items():
        summary += f" (short name: {short})" if name == str(spec) else ""
    return Variant(
        str(spec),
        summary,
        True,
        partial(_build_fused, spec),
        partial(_check_fused, spec),
        partial(_check_fused_model, spec),
        interpretable=not spec.cuda_graph,
        spec=spec,
        splits=True,
    )


_BUILT_IN = (
    Variant(
        "eager",
        "transformers as people run it: DynamicCache, one launch per operator",
        False,
        _build_eager,
        splits=True,
    ),
    Variant(
        "compiled",
        "transformers with StaticCache and torch.compile (reduce-overhead: CUDA graphs)",
        True,
        _build_compiled,
        splits=True,
    ),
    _fused(VariantSpec("fused")),
    _fused(VariantSpec("fused", cuda_graph=True)),
    *(
        _fused(VariantSpec("fused", cuda_graph=True, weight_format=format))
        for format, stored in NARROW_WEIGHTS.items()
        if stored.listed and format != "w8a8"
    ),
    _fused(VariantSpec("fused", cuda_graph=True, kv_format="fp8_e4m3")),
    _fused(VariantSpec("fused", cuda_graph=True, weight_format="w8a8")),
)


def _why_not(variant: Variant, device: str) -> str | None:
    missing = _what_is_missing(variant)
    if not variant.requires_cuda or device == "cuda":
        return missing
    without_graph = variant.name.replace("+graph", "")
    if not variant.interpretable:
        hint = f"; Triton's interpreter can run {without_graph}"
        reason = f"needs a CUDA device{hint if without_graph != variant.name else ''}"
        return reason if missing is None else f"{reason}; {missing}"
    if not interpreting():
        return "needs a CUDA device, or TRITON_INTERPRET=1 to check tokens and accuracy on the CPU"
    return None


def _what_is_missing(variant: Variant) -> str | None:
    if variant.missing is None:
        return None
    try:
        missing = variant.missing()
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"its function `missing` failed: {first_line(error)}"
    if missing is None or isinstance(missing, str):
        return missing
    return f"its function `missing` returned a {type(missing).__name__}, not a text"


def _installed() -> tuple[list[Variant], list[VariantInfo]]:
    taken = {*(variant.name for variant in _BUILT_IN), *SHORT_NAMES}
    installed: list[Variant] = []
    broken: list[VariantInfo] = []
    for entry in sorted(entry_points(group=VARIANTS_GROUP), key=lambda entry: entry.name):
        variant, reason = _load(entry)
        if variant is not None and variant.name in taken:
            reason = f"its name {variant.name!r} is taken"
        if variant is None or reason is not None:
            broken.append(VariantInfo(entry.name, f"from {entry.value}", reason))
            continue
        taken.add(variant.name)
        installed.append(variant)
    return installed, broken


def _load(entry: EntryPoint) -> tuple[Variant | None, str | None]:
    try:
        loaded = entry.load()
    except KeyboardInterrupt:
        raise
    except DecodescopeError as error:
        return None, f"cannot be loaded: {error}"
    except BaseException as error:  # a third-party package may fail in any way, and exit
        return None, f"cannot be loaded: {first_line(error)}"
    if isinstance(loaded, Variant):
        return loaded, None
    return None, f"{entry.value} is a {type(loaded).__name__}, not a decodescope Variant"
