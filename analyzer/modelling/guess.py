"""Which of the bundled models a trace is of, by what it shows, and the formats of its weights.

A model fits if nothing contradicts it; what it explains is its evidence. A model is taken only if
it explains the number of layers and a width (products, logits, all-reduces) or the name of its
class, and if every other one that fits explains less.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import bundled_models, model_shape
from decodescope.analyzer.modelling.matrices import head_matrix
from decodescope.analyzer.modelling.shape import ModelShape, numbered
from decodescope.analyzer.modelling.trace_facts import (
    TraceFacts,
    contradictions,
    matrix_sizes,
    padded_vocabulary,
    shown_requests,
)
from decodescope.analyzer.modelling.weight_formats import WeightFormat, weight_format
from decodescope.analyzer.modelling.weights import PART_OF_ROLE, Weights

# Products that fit must have this share of the FLOPs: those that do not may be attention.
_EXPLAINED = 0.99
_DEGREES = (2, 4, 8, 16)
_MODEL_CLASS = re.compile(r"(\w+?)(?:ForCausalLM|ForConditionalGeneration|DecoderLayer)(?:_\d+)?")
# Classes by which engines also run other models than those that are named so.
_BASE_CLASSES = {
    "llama": ("mistral", "phi3", "arcee"),
    "deepseekv2": ("deepseekv3", "kimik2", "glm4moelite"),
    "transformers": None,
}
# Of several formats of the same width, the one with the fewest bytes: what a guess reads must not
# be more than what the step reads.
_FORMATS = (
    ("int4", re.compile(r"(?i:fp4|e2m1|int4|w4a|a4w4|awq|gptq|marlin|machete|4bit|nf4)")),
    ("fp8", re.compile(r"(?i:fp8|float8|e4m3|e5m2|w8a|a8w8|int8|imma)|_F8|_I8|nvjet_\w*?qq")),
)
# vLLM's kernels name the enumeration of its cache formats, 0 being that of the model's dtype.
_KV_OF_8_BITS = re.compile(
    r"(?i:fp8(?!KVCacheDataType\)?0)|float8|e4m3|e5m2|int8|unsigned char|uint8)"
)
_ENOUGH = frozenset(("class", "products", "vocabulary", "hidden"))


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model that nothing contradicts, over `tensor_parallel` devices. `evidence` says what it
    explains, by kind; `names` are those of the models of this shape."""

    shape: ModelShape
    names: tuple[str, ...]
    tensor_parallel: int
    evidence: dict[str, str]

    @property
    def is_enough(self) -> bool:
        return "layers" in self.evidence and not _ENOUGH.isdisjoint(self.evidence)

    @property
    def words(self) -> str:
        degree = f" over {self.tensor_parallel} devices" if self.tensor_parallel > 1 else ""
        return f"{self.shape.name}{degree}"


def candidates(facts: TraceFacts, tensor_parallel: int | None = None) -> list[Candidate]:
    """The bundled models that fit and explain the layers and something else, without those that
    explain only a part of what another one does. `tensor_parallel` is what the user gave.

    It is a guess only if one candidate is left, and `is_enough`.
    """
    if facts.layers is None:
        return []
    fitting = []
    for name, model in bundled_models().items():
        # The shape of an entry takes longer to make than its layers to compare.
        if model.config["num_hidden_layers"] == facts.layers:
            shape = model_shape(model.config, name, name)
            for degree in _degrees(facts, tensor_parallel):
                evidence = _evidence(shape, facts, degree)
                if len(evidence) > 1:
                    fitting.append(Candidate(shape, (name, *model.aliases), degree, evidence))
    return [
        candidate
        for candidate in fitting
        if not any(candidate.evidence.keys() < other.evidence.keys() for other in fitting)
    ]


def class_families(classes: Sequence[str]) -> frozenset[str]:
    """The families that names of modules name, in the spelling of `model_type` without "_":
    Qwen3MoeForCausalLM_0 -> qwen3moe. Those of whole models precede those of layers."""
    matches = [match for name in classes if (match := _MODEL_CLASS.fullmatch(name))]
    whole = [match for match in matches if "DecoderLayer" not in match[0]]
    families = {match[1].lower().replace("_", "") for match in whole or matches}
    return frozenset(families - {""})


def shown_format(names: Collection[str]) -> WeightFormat | None:
    for name, pattern in _FORMATS:
        if any(map(pattern.search, names)):
            return weight_format(name)
    return None


def narrowed(
    weights: Weights, kernels: Mapping[str, Collection[str]], element_bytes: int | None = None
) -> tuple[Weights, str | None]:
    """The formats of a model where those that its kernels show are no narrower, and in words what
    was changed, None for nothing. `kernels` holds the names of each role's kernels, `element_bytes`
    is the least that its products' shapes show for the weights."""
    changed = []
    for part in dict.fromkeys(PART_OF_ROLE.values()):
        names = [
            name for role in kernels if PART_OF_ROLE.get(role) == part for name in kernels[role]
        ]
        shown = shown_format(names)
        if shown is None and element_bytes == 1 and part != "head":
            shown = weight_format("fp8")
        if shown is not None and shown.bits < weights.of(part).bits:
            weights = weights.with_parts((part,), shown)
            changed.append(f"{part}={shown.name}")
    cache_names = [*kernels.get("kv_write", ()), *kernels.get("attention", ())]
    if weights.kv_element_bytes > 1 and any(map(_KV_OF_8_BITS.search, cache_names)):
        weights = replace(weights, kv_element_bytes=1)
        changed.append("kv=fp8")
    return weights, ",".join(changed) or None


def _degrees(facts: TraceFacts, tensor_parallel: int | None) -> Sequence[int]:
    if tensor_parallel is not None:
        return (tensor_parallel,)
    if facts.ranks:
        return sorted(set(facts.ranks))
    return _DEGREES if facts.communicates else (1,)


def _evidence(shape: ModelShape, facts: TraceFacts, degree: int) -> dict[str, str]:
    """The facts that the model explains, empty if something contradicts it."""
    try:
        if any(contradictions(shape, facts, degree)):
            return {}
        evidence = dict(_explained(shape, facts, degree))
    except InputError:
        # The model cannot be divided so.
        return {}
    wrong_class = bool(class_families(tuple(facts.classes))) and "of_class" not in evidence
    wrong_products = bool(facts.products) and "products" not in evidence
    wrong_norms = "qk_norm" in facts.roles and shape.qk_norm == "none" and shape.latent is None
    if wrong_class or wrong_products or wrong_norms:
        return {}
    return {kind: words for kind, words in evidence.items() if words}


def _explained(shape: ModelShape, facts: TraceFacts, degree: int) -> Iterator[tuple[str, str]]:
    yield "layers", f"{len(shape.layers)} layers"
    yield from _by_class(shape, facts)
    if words := _by_products(shape, facts, degree):
        yield "products", words
    if degree > 1 and shown_requests(shape, facts, degree) is not None:
        logits = padded_vocabulary(shape) // degree
        yield "vocabulary", f"gathers of {logits:,} logits, {shape.vocabulary:,} ÷ {degree}"
    if facts.tokens is not None and facts.tokens * shape.hidden in facts.reduced:
        yield "hidden", f"all-reduces of {facts.tokens:,} x {shape.hidden:,} elements"
    if len(set(facts.motif)) > 1 and numbered(facts.motif) == shape.kinds():
        yield "variants", "the order of its kinds of layers"
    if "experts" in facts.roles and shape.experts is not None:
        yield "experts", "experts"
    if "qk_norm" in facts.roles and shape.qk_norm != "none":
        yield "qk_norm", "norms of Q and K"


def _by_class(shape: ModelShape, facts: TraceFacts) -> Iterator[tuple[str, str]]:
    key = shape.model_type.removesuffix("_text").replace("_", "")
    for family in class_families(tuple(facts.classes)):
        others = _BASE_CLASSES.get(family, ())
        if others is None or key == family or key in others:
            # A class that other models share is no evidence, yet it does not contradict.
            yield "of_class", ""
            if family not in _BASE_CLASSES:
                yield "class", f"modules of the class {family}"


def _by_products(shape: ModelShape, facts: TraceFacts, degree: int) -> str:
    """Products of layers that have one number of tokens, and products of the head, if nearly all of
    the FLOPs are theirs. (A product of m tokens and n outputs is also one of n tokens and m.)"""
    head = head_matrix(shape, degree)
    in_layers = matrix_sizes(shape, degree) - {(head.rows, head.columns)}
    of_head, of_tokens = 0, Counter[int]()
    for product in facts.products:
        if product.fits(head.rows, head.columns):
            of_head += product.all_flops
            continue
        fits = {fit.tokens for size in in_layers if (fit := product.fits(*size))}
        of_tokens.update(dict.fromkeys(fits, product.all_flops))
    flops = of_head + max(of_tokens.values(), default=0)
    total = sum(product.all_flops for product in facts.products)
    if not flops or flops < _EXPLAINED * total:
        return ""
    return f"products of width {shape.hidden:,}"
