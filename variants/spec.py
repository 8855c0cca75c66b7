"""The parts of a variant, and their string such as `fused+graph+fp8_e4m3+kv_fp8_e4m3-pdl`.

Grammar: kernels (`eager`, `compiled`, `fused`); then, each after a "+", `graph`, one weight format,
`head16`, `embedding8` or `embedding16`, one format of the KV cache and one all-reduce; and, each
after a "-", the parts of the fused kernels that are left out. Options may come in any order after
the kernels; `str(spec)` has the canonical one, that of this sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from decodescope.analyzer.errors import InputError
from decodescope.kernels.host.packing import PACKED_FORMATS, PackedName

if TYPE_CHECKING:
    from decodescope.kernels.host.weights import NarrowFormat

Kernels = Literal["eager", "compiled", "fused"]
ByteWord = Literal["fp8_e4m3", "fp8_e5m2", "fp8_e5m2_cast", "int8", "w8a8"]
WeightFormat = Literal["bf16", "fp16", "fp32"] | ByteWord | PackedName
KvFormat = Literal["fp8_e4m3", "fp8_e5m2"]
AllReduce = Literal["torch", "one_shot", "two_shot", "none"]
Fusion = Literal["norm", "qkv", "rope", "attention", "residual", "gate_up", "head"]
Part = Fusion | Literal["pdl"]

KERNELS: tuple[Kernels, ...] = get_args(Kernels)
KV_FORMATS: tuple[KvFormat, ...] = get_args(KvFormat)
# Models are loaded in these.
LOADED_FORMATS: tuple[WeightFormat, ...] = ("bf16", "fp16", "fp32")
WEIGHT_FORMATS: tuple[WeightFormat, ...] = (
    *LOADED_FORMATS,
    *get_args(ByteWord),
    *PACKED_FORMATS,
)
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)
PARTS: tuple[Part, ...] = (*FUSIONS, "pdl")


@dataclass(frozen=True, slots=True)
class NarrowWeights:
    """The meaning of a word for narrow weights: the elements, their name in lists, and whether each
    output channel has a scale (of 4 bits, the format says which scales there are). Lists of
    variants have one of those `listed`."""

    elements: NarrowFormat
    title: str
    scaled: bool = True
    listed: bool = True


# W8A8 differs in its activations only.
NARROW_WEIGHTS: dict[WeightFormat, NarrowWeights] = {
    "fp8_e4m3": NarrowWeights("fp8_e4m3", "FP8 (E4M3)"),
    "fp8_e5m2": NarrowWeights("fp8_e5m2", "FP8 (E5M2)"),
    "fp8_e5m2_cast": NarrowWeights("fp8_e5m2", "FP8 (E5M2 without scales)", scaled=False),
    "int8": NarrowWeights("int8", "INT8"),
    "w8a8": NarrowWeights("fp8_e4m3", "FP8 (E4M3)"),
    "int4": NarrowWeights("int4", "INT4 (groups of 128)"),
    "int4_g64": NarrowWeights("int4_g64", "INT4 (groups of 64)", listed=False),
    "int4_g32": NarrowWeights("int4_g32", "INT4 (groups of 32)", listed=False),
    "int4_channel": NarrowWeights("int4_channel", "INT4 (one scale a channel)", listed=False),
    "int4_asym": NarrowWeights("int4_asym", "INT4 (with zero points)", listed=False),
    "mxfp4": NarrowWeights("mxfp4", "MXFP4"),
    "nvfp4": NarrowWeights("nvfp4", "NVFP4"),
}

# The field of `VariantSpec` that a word sets, and its value.
_WORDS: dict[str, tuple[str, object]] = {
    "graph": ("cuda_graph", True),
    "head16": ("head16", True),
    "embedding8": ("embedding_bits", 8),
    "embedding16": ("embedding_bits", 16),
    **{name: ("weight_format", name) for name in WEIGHT_FORMATS},
    **{f"kv_{name}": ("kv_format", name) for name in KV_FORMATS},
    **{f"all_reduce_{name}": ("all_reduce", name) for name in get_args(AllReduce)},
}
_WORD_OF = {meaning: word for word, meaning in _WORDS.items()}
_OPTION = re.compile(r"([+-])([^+-]*)")


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """The way a decode step is computed.

    `cuda_graph`: the whole step is captured as one CUDA graph (`compiled` brings torch.compile's
    own graphs and does not take it). `weight_format` None means the workload's dtype, and
    `kv_format` None likewise for K and V. A narrow format holds the layers' matrices and lm_head,
    those of 8 bits with one scale for each output channel:

    - fp8_e4m3, fp8_e5m2, int8: the model's dtype for activations. `fp8_e5m2_cast` has no scales.
    - int4, int4_g64, int4_g32, int4_channel, int4_asym, mxfp4, nvfp4: 4 bits, with a scale for each
      group of columns (`kernels.host.packing`).
    - w8a8: E4M3 weights, and E4M3 activations with one scale for each token. With `head16` lm_head
      keeps its activations as well.

    With `head16` lm_head keeps the workload's dtype. The embedding table keeps it beside weights of
    8 bits, unless `embedding_bits` is 8: then it has their format. Beside 4 bits it has INT8,
    unless `embedding_bits` is 16.

    `all_reduce` is how several ranks add up their sums. None: by our kernel where their GPUs reach
    each other's memory, else as `torch`, torch.distributed's. `one_shot` and `two_shot` are those
    of PyTorch's symmetric memory. With `none` each rank goes on with its own part, to measure what
    the sums cost: its tokens are wrong.

    `without` names what `fused` kernels, which use every part by default, leave out:

    - norm: RMSNorm inside the projections; without it, and for a batch, separate launches (which
      also add to the residual if that is left out too).
    - qkv: Q, K and V in one launch; without it, three, and rope is left out as well.
    - rope: rotation and KV-cache write in the QKV launch; without it, separate launches.
    - attention: split-KV attention over the visible positions; without it, PyTorch's
      scaled_dot_product_attention over the whole static cache with a mask.
    - residual: the O and down projections add to the residual; without it, a separate launch does.
    - gate_up: gate, up and SiLU * up in one launch; without it, three, of experts two.
    - head: final norm, lm_head and the choice of the token in one launch; without it, lm_head gives
      logits and PyTorch chooses.
    - pdl: programmatic dependent launch.

    GPUs below compute capability 9.0 run without pdl.

    Raises:
        InputError: parts that contradict each other.
    """

    kernels: Kernels
    cuda_graph: bool = False
    weight_format: WeightFormat | None = None
    head16: bool = False
    embedding_bits: Literal[8, 16] | None = None
    kv_format: KvFormat | None = None
    all_reduce: AllReduce | None = None
    without: frozenset[Part] = field(default=frozenset())

    def __post_init__(self) -> None:
        if (self.narrow or self.kv_format) and self.kernels != "fused":
            raise InputError(
                f"variant {self.kernels}: only fused kernels read FP8, INT8 and 4 bits"
            )
        if self.all_reduce and self.kernels != "fused":
            raise InputError(
                f"variant {self.kernels}: only fused kernels can add up their sums in another way"
            )
        self._check_exceptions()
        if self.kv_format and "attention" in self.without:
            raise InputError(
                f"variant fused+kv_{self.kv_format}-attention: PyTorch's attention reads no FP8; "
                "leave out one of the two"
            )
        if self.cuda_graph and self.kernels == "compiled":
            raise InputError("variant compiled+graph: compiled already replays CUDA graphs")

    def _check_exceptions(self) -> None:
        for option in (("head16", self.head16), ("embedding_bits", self.embedding_bits)):
            if option in _WORD_OF and not self.narrow:
                raise InputError(
                    f"variant {self.kernels}+{_WORD_OF[option]}: goes with a narrow weight format, "
                    "such as fp8_e4m3"
                )
        if self.embedding_bits == (8 if self.packed else 16):
            raise InputError(
                f"variant {self.kernels}+{self.weight_format}+embedding{self.embedding_bits}: the "
                f"embedding table has {self.embedding_bits} bits without that word; leave it out"
            )

    @classmethod
    def parse(cls, text: str) -> VariantSpec:
        """The spec that `text` writes; `VariantSpec.parse(str(spec)) == spec`.

        Raises:
            InputError: an unknown, repeated or contradicting part, with the nearest known one.
        """
        kernels = kernels_of(text)
        _known(f"variant {text!r}: kernels", kernels, KERNELS)
        chosen: dict[str, Any] = {}
        without: list[str] = []
        for sign, name in _OPTION.findall(text[len(kernels) :]):
            if sign == "-":
                _known(f"variant {text!r}: part to leave out", name, PARTS)
                repeated = name in without
                without.append(name)
            else:
                _known(f"variant {text!r}: part", name, tuple(_WORDS))
                field_name, value = _WORDS[name]
                repeated = field_name in chosen
                chosen[field_name] = value
            if repeated:
                raise InputError(f"variant {text!r}: {sign + name!r} repeats an earlier part")
        if without and kernels != "fused":
            raise InputError(f"variant {text!r}: only fused kernels have parts to leave out")
        return cls(cast(Kernels, kernels), **chosen, without=frozenset(cast(list[Part], without)))

    @property
    def narrow(self) -> bool:
        return self.weight_format in NARROW_WEIGHTS

    @property
    def packed(self) -> bool:
        """Whether weights have 4 bits."""
        return self.weight_format in PACKED_FORMATS

    @property
    def narrow_embedding(self) -> bool:
        """Whether the embedding table has 8 bits."""
        return self.packed if self.embedding_bits is None else self.embedding_bits == 8

    @property
    def fp8_x(self) -> bool:
        """Whether products with narrow weights read E4M3 activations."""
        return self.weight_format == "w8a8"

    @property
    def formats(self) -> VariantSpec:
        """`fused` with the same narrow formats of weights, K and V, and nothing else of it."""
        return VariantSpec(
            "fused",
            weight_format=self.weight_format if self.narrow else None,
            head16=self.head16,
            embedding_bits=self.embedding_bits,
            kv_format=self.kv_format,
        )

    def uses(self, part: Part) -> bool:
        if part == "rope" and "qkv" in self.without:
            return False
        return part not in self.without

    def __str__(self) -> str:
        chosen = ((each.name, getattr(self, each.name)) for each in fields(self))
        words = [_WORD_OF[option] for option in chosen if option in _WORD_OF]
        left_out = [name for name in PARTS if name in self.without]
        return "-".join(["+".join((self.kernels, *words)), *left_out])


def kernels_of(text: str) -> str:
    """The first word of a variant string, known or not."""
    return re.split(r"[+-]", text, maxsplit=1)[0]


def nearest_or_all(value: str, known: Iterable[str]) -> str:
    """The end of a message about an unknown `value`: the nearest known one, else all of them."""
    nearest = get_close_matches(value, known := tuple(known), n=1)
    return f" (did you mean {nearest[0]}?)" if nearest else f"; known: {', '.join(known)}"


def _known(title: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{title} {value!r} is unknown{nearest_or_all(value, known)}")
