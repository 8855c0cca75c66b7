"""What a variant is made of, written as a string such as `fused+graph+fp8_e4m3`.

Grammar, parts joined by "+": kernels (`eager`, `compiled`, `fused`), then in any order `graph`,
one weight format, and `no_<fusion>` for each fusion left out. `str(spec)` has the canonical order.
"""

from dataclasses import dataclass
from difflib import get_close_matches
from typing import Literal, cast, get_args

from decodescope.analyzer.errors import InputError

Kernels = Literal["eager", "compiled", "fused"]
WeightFormat = Literal["bf16", "fp16", "fp32", "fp8_e4m3", "fp8_e5m2", "int8"]
Fusion = Literal[
    "norm_qkv_rope", "attention", "o_residual", "norm_gate_up", "down_residual", "head"
]

KERNELS: tuple[Kernels, ...] = get_args(Kernels)
WEIGHT_FORMATS: tuple[WeightFormat, ...] = get_args(WeightFormat)
FUSIONS: tuple[Fusion, ...] = get_args(Fusion)

_GRAPH = "graph"
_WITHOUT = "no_"


@dataclass(frozen=True, slots=True)
class VariantSpec:
    """How a decode step is computed.

    `cuda_graph`: the whole step is captured as one CUDA graph (`compiled` brings torch.compile's
    own graphs and does not take it). `weight_format` None means the workload's dtype. `fusions` are
    the fused launches in use; they belong to `fused` kernels, which has all of them by default.

    Raises:
        InputError: an unknown part, or parts that contradict each other.
    """

    kernels: Kernels
    cuda_graph: bool = False
    weight_format: WeightFormat | None = None
    fusions: frozenset[Fusion] | None = None

    def __post_init__(self) -> None:
        _known("kernels", self.kernels, KERNELS)
        if self.weight_format is not None:
            _known("weight format", self.weight_format, WEIGHT_FORMATS)
        if self.fusions is None:
            default = frozenset(FUSIONS) if self.kernels == "fused" else frozenset[Fusion]()
            object.__setattr__(self, "fusions", default)
        for fusion in sorted(self.fusions or ()):
            _known("fusion", fusion, FUSIONS)
        if self.fusions and self.kernels != "fused":
            raise InputError(f"variant {self.kernels}: only fused kernels have fusions")
        if self.cuda_graph and self.kernels == "compiled":
            raise InputError("variant compiled+graph: compiled already replays CUDA graphs")

    @classmethod
    def parse(cls, text: str) -> "VariantSpec":
        """The spec that `text` writes; `VariantSpec.parse(str(spec)) == spec`.

        Raises:
            InputError: an unknown, repeated or contradicting part, with the nearest known one.
        """
        kernels, *parts = text.split("+")
        _known(f"variant {text!r}: kernels", kernels, KERNELS)
        options = _Options(text)
        for part in parts:
            options.take(part)
        if options.left_out and kernels != "fused":
            raise InputError(f"variant {text!r}: only fused kernels have fusions to leave out")
        fusions = frozenset(FUSIONS) - options.left_out if kernels == "fused" else None
        return cls(cast(Kernels, kernels), options.graph, options.weight_format, fusions)

    def __str__(self) -> str:
        parts: list[str] = [self.kernels]
        if self.cuda_graph:
            parts.append(_GRAPH)
        if self.weight_format is not None:
            parts.append(self.weight_format)
        if self.kernels == "fused":
            parts += [_WITHOUT + name for name in FUSIONS if name not in (self.fusions or ())]
        return "+".join(parts)


class _Options:
    """The parts of a variant string after its kernels, each taken at most once."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.graph = False
        self.weight_format: WeightFormat | None = None
        self.left_out: set[Fusion] = set()

    def take(self, part: str) -> None:
        if part == _GRAPH and not self.graph:
            self.graph = True
        elif part in WEIGHT_FORMATS and self.weight_format is None:
            self.weight_format = part
        elif part.startswith(_WITHOUT) and self._fusion(part) not in self.left_out:
            self.left_out.add(self._fusion(part))
        else:
            repeated = part in (_GRAPH, *WEIGHT_FORMATS) or part.startswith(_WITHOUT)
            if repeated:
                raise InputError(f"variant {self._text!r}: {part!r} repeats an earlier part")
            _known(f"variant {self._text!r}: part", part, (_GRAPH, *WEIGHT_FORMATS))

    def _fusion(self, part: str) -> Fusion:
        name = part.removeprefix(_WITHOUT)
        _known(f"variant {self._text!r}: fusion", name, FUSIONS)
        return cast(Fusion, name)


def _known(what: str, value: str, known: tuple[str, ...]) -> None:
    if value in known:
        return
    nearest = get_close_matches(value, known, n=1)
    hint = f" (did you mean {nearest[0]}?)" if nearest else f"; known: {', '.join(known)}"
    raise InputError(f"{what} {value!r} is unknown{hint}")
