"""The layers of one step: prologue, L layers, epilogue, from the kinds and names of its ops.

`letters` holds one letter an op (`names.rules.KINDS`), in order of launch. Every layer of a
transformer mixes tokens once, so each group of attention ops is the middle of one layer. A layer
ends after its feed-forward block and the residual addition behind it; fused with the next layer's
norm, that addition belongs to the next layer. What is found counts only if the layers repeat:
a motif of kinds and names occurs at least twice, and such motifs make up most of the step.
"""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from decodescope.analyzer.attribution.alignment import common_lengths
from decodescope.analyzer.names.rules import UNKNOWN_LETTER
from decodescope.analyzer.timing.repetition import maximal_runs
from decodescope.analyzer.trace import Int64s

MIN_LAYERS = 2
MIN_COVERED = 0.5
MIN_REPEATED = 0.6
_SIMILAR = 0.7
_MIN_PRODUCTS = 2
_NAME_MOTIFS = 8
_MORE_OPS = 8
_GROUP = re.compile(r"A(?:[^PGXNnA]*A)*")
_NORM = re.compile(r"m?n|N")
# Of whole norms one after another, the last is the next layer's.
_LAST_NORM = re.compile(r"(?P<before>N*)(?:m?n|N)")
# Behind experts, with a norm of its own or without.
_MLP_BEHIND = re.compile(r"[^PGXA]*(?:G|P[^GXAnN]*g)[^GXAnN]*?P")
# Gemma 4: behind the down product, a gate and a projection of the layer's own input.
_OWN_INPUT = re.compile(r"[^PGXA]*P[^PNnA]*g[^PNnA]*P")
# Scores, softmax and values as separate products; a router's softmax is followed by a selection.
_MATH_ATTENTION = re.compile(r"P([^PARgX]*s[^PARgX]*)P")


@dataclass(frozen=True, slots=True)
class Layer:
    """The ops [start, end) of a step; attention is [attention, after_attention). `motif` is the
    number of its motif; `exact` whether another layer has the same ops."""

    start: int
    attention: int
    after_attention: int
    end: int
    motif: int = 0
    exact: bool = False


@dataclass(frozen=True, slots=True)
class StepLayers:
    """Layers in order, one directly after another; `motif_ops` is the number of ops of each motif,
    in order of appearance. `letters` are those of the step, with attention that was inferred."""

    layers: tuple[Layer, ...]
    motif_ops: tuple[int, ...]
    letters: str


def find_layers(letters: str, names: Int64s, ns: Int64s) -> StepLayers | None:
    """The layers of a step, None if it has none that repeat.

    `names` holds the number of each op's name (numbers behind the name left out), `ns` its
    duration, which decides what may be the attention of a motif without a known one.
    """
    if "A" not in letters:
        letters = _MATH_ATTENTION.sub(lambda attention: "A" * len(attention[0]), letters)
    if "A" not in letters:
        letters = _with_inferred_attention(letters, names, ns)
    groups = [group.span() for group in _GROUP.finditer(letters)]
    best = max(_stretches(letters, groups), key=_covered, default=[])
    if len(best) < MIN_LAYERS or _covered(best) < MIN_COVERED * len(letters):
        return None
    layers, motif_ops, repeated = _with_motifs(best, letters, names)
    if repeated < MIN_REPEATED * len(layers):
        return None
    return StepLayers(tuple(layers), motif_ops, letters)


def feed_forward(letters: str, start: int, end: int) -> tuple[int, int]:
    """Where the feed-forward block of the ops behind an attention, [start, end), begins, and the
    place of its last op (the down product, or the last op of the experts); `end` and -1 if unknown.

    The block begins behind the first norm after the O product, or behind that product if all norms
    are fused into products.
    """
    output = letters.find("P", start, end)
    if output < 0:
        return end, -1
    norm = _NORM.search(letters, output, end)
    gated = letters.find("G", output + 1, end)
    begin = norm.start() if norm and (gated < 0 or norm.start() < gated) else output + 1
    expert = letters.rfind("X", begin, end)
    if expert >= 0:
        # An MLP that all tokens share may run behind the experts, or around them if gate, up and
        # activation are one op; its down product is the last op.
        if behind := _MLP_BEHIND.match(letters, expert + 1, end):
            return begin, max(behind.end() - 1, _down(letters, expert + 1, end))
        norm = _NORM.search(letters, expert + 1, end)
        product = letters.find("P", expert + 1, norm.start() if norm else end)
        return begin, product if product >= 0 and begin <= gated < expert else expert
    if gated >= 0:
        return begin, letters.find("P", gated, end)
    return begin, _down(letters, begin, end)


def _down(letters: str, begin: int, end: int) -> int:
    """The product behind the activation; of "gate, activation, up, multiply, down" the last."""
    activation = letters.find("g", begin, end)
    if activation < 0:
        return -1
    first = letters.find("P", activation, end)
    split = re.compile(r"g[^PNn*]*P[^PNn*]*\*[^PNn]*P").match(letters, activation, end)
    return split.end() - 1 if split else first


def _stretches(letters: str, groups: Sequence[tuple[int, int]]) -> list[list[Layer]]:
    """Consecutive layers, as long as one ends where the next begins."""
    stretches: list[list[Layer]] = []
    start: int | None = None
    for place, (first, after) in enumerate(groups):
        until = groups[place + 1][0] if place + 1 < len(groups) else len(letters)
        end = _layer_end(letters, after, until)
        if end is not None:
            if start is None:
                stretches.append([])
            stretches[-1].append(Layer(first if start is None else start, first, after, end))
        start = end
    whole = [_with_first_start(letters, stretch) for stretch in stretches]
    return [stretch for stretch in whole if all(_has_products(letters, layer) for layer in stretch)]


def _layer_end(letters: str, after: int, until: int) -> int | None:
    """Where the layer ends whose attention ends at `after`; the next attention is at `until`."""
    begin, last = feed_forward(letters, after, until)
    if last < 0:
        return _last_norm(letters, begin, until)
    if own_input := _OWN_INPUT.match(letters, last + 1, until):
        last = own_input.end() - 1
    product = letters.find("P", last + 1, until)
    limit = product if product >= 0 else until
    residual = letters.rfind("+", last + 1, limit)
    if residual >= 0:
        return residual + 1
    norm = _LAST_NORM.search(letters, last + 1, limit)
    if norm:
        return norm.end("before")
    tail = re.compile(r"[Sc]*").match(letters, last + 1, limit)
    return tail.end() if tail else last + 1


def _last_norm(letters: str, begin: int, until: int) -> int | None:
    first = letters.find("P", begin, until)
    last = letters.rfind("P", begin, until)
    starts = [norm.start() for norm in _NORM.finditer(letters, first + 1, last)]
    return starts[-1] if first >= 0 and starts else None


def _with_first_start(letters: str, layers: list[Layer]) -> list[Layer]:
    """Gives the first layer its start: the ops before its attention that are most like those of the
    second layer, by the F2 score of their longest common subsequence: an op that the prologue put
    between (the rotary tables, say) counts less than one that is missing."""
    if len(layers) < MIN_LAYERS:
        return layers
    first, second = layers[0], layers[1]
    pattern = numbers(letters[second.start : second.attention])[::-1]
    if not len(pattern):
        return layers
    before = numbers(letters[: first.attention])[::-1][: 2 * len(pattern) + _MORE_OPS]
    common = common_lengths(pattern, before)
    alike = 5 * common / (4 * len(pattern) + np.arange(len(common)))
    return [replace(first, start=first.attention - int(alike.argmax())), *layers[1:]]


def _has_products(letters: str, layer: Layer) -> bool:
    """Whether a layer has a product before its attention and one behind it, and no convolution."""
    before, behind = (
        any(letters.find(letter, start, end) >= 0 for letter in "PGX")
        for start, end in ((layer.start, layer.attention), (layer.after_attention, layer.end))
    )
    return before and behind and letters.find("v", layer.start, layer.end) < 0


def _covered(layers: Sequence[Layer]) -> int:
    return layers[-1].end - layers[0].start if layers else 0


def _with_motifs(
    layers: Sequence[Layer], letters: str, names: Int64s
) -> tuple[list[Layer], tuple[int, ...], int]:
    by_name = [names[layer.start : layer.end].tobytes() for layer in layers]
    by_kind = [letters[layer.start : layer.end] for layer in layers]
    keys: Sequence[str | bytes] = by_name if _repeat(by_name) else by_kind
    counts = Counter(keys)
    repeated = [key for key in counts if counts[key] > 1]
    kinds = [by_kind[keys.index(key)] for key in repeated]
    with_motif = []
    for layer, key, kind in zip(layers, keys, by_kind, strict=True):
        exact = counts[key] > 1
        motif = repeated.index(key) if exact else _nearest(kind, kinds)
        if motif == len(kinds):
            kinds.append(kind)
        with_motif.append(replace(layer, motif=motif, exact=exact))
    order = list(dict.fromkeys(layer.motif for layer in with_motif))
    numbered = [replace(layer, motif=order.index(layer.motif)) for layer in with_motif]
    ops = tuple(len(kinds[motif]) for motif in order)
    return numbered, ops, sum(layer.exact for layer in with_motif)


def _repeat(keys: Sequence[bytes]) -> bool:
    """Whether a few motifs, each of several layers, make up most of the layers."""
    counts = [count for count in Counter(keys).values() if count > 1]
    return len(counts) <= _NAME_MOTIFS and sum(counts) >= MIN_REPEATED * len(keys)


def _nearest(kind: str, kinds: Sequence[str]) -> int:
    """The motif that shares most ops with a layer; a new number if it is unlike all."""
    own = numbers(kind)
    best, at = _SIMILAR, len(kinds)
    for place, other in enumerate(kinds):
        of_motif = numbers(other)
        share = 2 * int(common_lengths(own, of_motif)[-1]) / (len(own) + len(of_motif))
        if share >= best:
            best, at = share, place
    return at


def _with_inferred_attention(letters: str, names: Int64s, ns: Int64s) -> str:
    """In a step that repeats a motif with products but without a known attention, the longest op of
    the motif that no rule knows is taken for it; unchanged if there is none."""
    for run in maximal_runs(names)[:1]:
        motif = slice(run.start, run.start + run.period)
        unknown = [i for i in range(motif.start, motif.stop) if letters[i] == UNKNOWN_LETTER]
        covered = run.end - run.start >= MIN_COVERED * len(letters)
        if covered and unknown and letters[motif].count("P") > _MIN_PRODUCTS:
            chosen = names[max(unknown, key=lambda i: int(ns[i]))]
            mixed = names == chosen
            return "".join(
                "A" if is_mixed else old for is_mixed, old in zip(mixed, letters, strict=True)
            )
    return letters


def numbers(letters: str) -> Int64s:
    return np.frombuffer(letters.encode(), dtype=np.uint8).astype(np.int64)
