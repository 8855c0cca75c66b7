"""Recorded steps (`tools/make_decode_ops.py`): kernel names, and the ranges that say the truth."""

import gzip
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
import numpy as np

from decodescope.analyzer.names.rules import NameMeaning, bundled_rules
from decodescope.analyzer.structure.layers import StepLayers, find_layers
from decodescope.analyzer.structure.step_structure import names_without_numbers
from decodescope.analyzer.trace import Int64s

_PATH = Path(__file__).resolve().parents[2] / "data" / "decode_ops.json.gz"
_LAYER = re.compile(r"(?:layer\.|DecoderLayer_|GPT2Block_)(\d+)")
_ATTENTION = frozenset(("qkv", "qk_norm", "rope", "kv_write", "attention", "o", "copy", "quantise"))
_FEED_FORWARD = frozenset(("gate_up", "activation", "down", "quantise"))
_MIXTURE = frozenset(("router", "experts", "activation", "gate_up", "down", "norm"))
# What the last part of a path allows as roles: of our own ranges, then of transformers' modules.
_OWN: tuple[tuple[str, frozenset[str]], ...] = (
    (r"qkv\+rope\+kv_write", frozenset(("qkv", "quantise"))),
    (r"decode_attention", frozenset(("attention",))),
    (r"o_proj\+residual", frozenset(("o", "quantise"))),
    (r"gate_up\+silu", frozenset(("gate_up", "quantise"))),
    (r"down_proj\+residual", frozenset(("down", "quantise"))),
    (r"final_norm\+lm_head", frozenset(("head", "quantise"))),
    (r"quantize$", frozenset(("quantise",))),
    (r"norm", frozenset(("norm", "quantise"))),
    (r"attention$", _ATTENTION),
    (r"mlp$", _FEED_FORWARD),
    (r"rotary$", frozenset(("rope", "copy"))),
    (r"lm_head$", frozenset(("head", "copy"))),
    (r"sampling$", frozenset(("sampling",))),
    (r"embedding$", frozenset(("copy",))),
    (r"layer\.\d+$", frozenset(("norm",))),
)
_MODULES: tuple[tuple[str, frozenset[str]], ...] = (
    (r"Attention_\d+.*Norm_\d+$", frozenset(("qk_norm",))),
    (r"Attention", _ATTENTION),
    (r"Router|Gate_", frozenset(("router",))),
    (r"Experts", frozenset(("experts", "activation"))),
    (r"Sparse|MoE_|Moe_|GptOssMLP", _MIXTURE),
    (r"MLP|Mlp", _FEED_FORWARD | {"experts"}),
    (r"(RMS|Layer)Norm_\d+$", frozenset(("norm",))),
    (r"Rotary", frozenset(("rope", "copy"))),
    (r"Embedding_\d+$", frozenset(("copy",))),
    (r"(DecoderLayer|Block)_\d+$", frozenset(("norm",))),
)


class _Recorded(msgspec.Struct):
    case: str
    names: list[str]
    paths: list[str]
    ops: list[tuple[int, int, int, int]]


class _Document(msgspec.Struct):
    steps: list[_Recorded]


@dataclass(frozen=True, slots=True, eq=False)
class RecordedStep:
    """The ops of one step: name, ns, and range path of each."""

    case: str
    names: list[str]
    ns: Int64s
    paths: list[str]

    @property
    def layers(self) -> list[int]:
        """The layer that each op's path names, -1 for none."""
        found = [_LAYER.search(path) for path in self.paths]
        return [int(one[1]) if one else -1 for one in found]


@cache
def recorded_steps() -> dict[str, RecordedStep]:
    """Every case by name."""
    document = msgspec.json.decode(gzip.decompress(_PATH.read_bytes()), type=_Document)
    return {one.case: _step(one) for one in document.steps}


def _step(one: _Recorded) -> RecordedStep:
    names = [one.names[op[0]] for op in one.ops]
    ns = np.array([op[2] for op in one.ops], dtype=np.int64)
    return RecordedStep(one.case, names, ns, [one.paths[op[3]] for op in one.ops])


def allowed_roles(path: str) -> frozenset[str] | None:
    """The roles that an op with this path can have; None if the path does not say."""
    parts = path.split("/")
    if parts[0] == "decode_step":
        return next((roles for part, roles in _OWN if re.search(part, parts[-1])), None)
    modules = "/".join(part for part in parts if not part.startswith("aten::"))
    return next((roles for part, roles in _MODULES if re.search(part, modules)), None)


@cache
def meaning_of(name: str) -> NameMeaning:
    """What one name says by the bundled rules."""
    return bundled_rules().meaning(name)


def letters_of(names: list[str]) -> str:
    """The letters of the kinds of some names."""
    return "".join(meaning_of(name).letter for name in names)


def layers_of(names: list[str], ns: Int64s | None = None) -> StepLayers | None:
    """The layers that names alone show."""
    durations = np.ones(len(names), dtype=np.int64) if ns is None else ns
    return find_layers(letters_of(names), names_without_numbers(names), durations)
