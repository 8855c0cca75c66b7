"""The structure of a trace, step by step: the layer of each op, and its role.

The name of an op decides its role where it can, else its place. Inside a layer, products and
attention divide it into places:

    norm | qkv products, with the norms, rotation and cache writes up to | attention | o
    norm | gate and up products | activation | down      or      router | experts

A layer's own input has a gate, an activation and a down product behind these (Gemma 4).

A residual addition counts with the norm behind it, as kernels fuse the two. Ops between two places
(casts, bias additions, reductions of a split product) count with the product before them, or with
the place they are in. A copy inside a device right before or behind an op that communicates stages
its message. `names.rules.ROLES` lists the roles.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.names.rules import KINDS, ROLE_OF_LETTER, ROLES, NameMeaning, NameRules
from decodescope.analyzer.structure.layers import Layer, StepLayers, feed_forward, find_layers
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int8s, Int32s, Int64s, Trace, grouped

NO_LAYER = -1
# Confidence of a role: from the name alone, from the place, unknown.
BY_NAME, BY_PLACE, UNKNOWN_ROLE = range(3)
KNOWN_BY = ("name", "place", "unknown")
# Inductor numbers its kernels in order of appearance.
_NUMBERED = re.compile(r"^(triton_\w*)_\d+$")
_MOST_OPS = 50_000
# Kinds whose role no place changes.
_FIXED = "Arkqct"
_NUMBER = {role: number for number, role in enumerate(ROLES)}
OTHER = _NUMBER["other"]
_LOCAL_COPY = re.compile(
    r"^(?:memcpy DtoD|copyDeviceToDevice|__amd_rocclr_copyBuffer)", re.IGNORECASE
)
_QK_NORM = re.compile(r"[m*e]*n(?:.*n)?(?:[*me]{0,4})")


@dataclass(frozen=True, slots=True, eq=False)
class Structure:
    """For each op of a trace: the number of its layer in its step (`NO_LAYER`: none), whether it is
    before its step's layers (`prologue`), its role (an index in `ROLES`) and how that was found
    (BY_NAME, BY_PLACE, UNKNOWN_ROLE).

    `of_step` holds the ops of each step in launch order, on the device with most of them, and their
    layers, None if there are none.
    """

    layer: Int32s
    prologue: Bools
    role: Int8s
    confidence: Int8s
    of_step: dict[int, tuple[Int64s, StepLayers | None]]


def find_structure(timeline: Timeline, rules: NameRules) -> Structure:
    """The layers of every step, and the role of every op: by name and place in a step, by the kind
    of its name elsewhere."""
    trace = timeline.trace
    meanings = [rules.meaning(name) for name in trace.names] if len(trace.ops) else []
    letters = "".join(meaning.letter for meaning in meanings)
    alone = roles_in_step(letters, [meaning.role for meaning in meanings], None)
    by_name = alone[trace.ops.name]
    structure = Structure(
        layer=np.full(len(trace.ops), NO_LAYER, dtype=np.int32),
        prologue=np.zeros(len(trace.ops), dtype=np.bool_),
        role=by_name.copy(),
        confidence=np.where(by_name == OTHER, UNKNOWN_ROLE, BY_NAME).astype(np.int8),
        of_step={},
    )
    whole = names_without_numbers(trace.names)
    alike: dict[bytes, list[tuple[int, Int64s]]] = {}
    longest: dict[int, Int64s] = {}
    for step, rows in _sequences(timeline):
        alike.setdefault(trace.ops.name[rows].tobytes(), []).append((step, rows))
        longest.setdefault(step, rows)
    for sequences in alike.values():
        layers, roles = _structure_of(trace, sequences[0][1], meanings, whole)
        structure.of_step.update(
            (step, (rows, layers)) for step, rows in sequences if longest[step] is rows
        )
        if layers is not None:
            _enter(structure, np.stack([rows for _, rows in sequences]), layers, roles, by_name)
    staging = _staging_copies(trace, letters)
    structure.role[staging] = _NUMBER["communication"]
    structure.confidence[staging] = BY_PLACE
    return structure


def _staging_copies(trace: Trace, letters: str) -> Int64s:
    """The copies inside a device whose neighbour on their stream communicates; `letters` holds one
    for each name."""
    is_copy = np.array([bool(_LOCAL_COPY.search(name)) for name in trace.names], dtype=np.bool_)
    if not is_copy.any():
        return np.zeros(0, dtype=np.int64)
    communicates = np.array(
        [letter == KINDS["communication"] for letter in letters], dtype=np.bool_
    )
    ops = trace.ops
    order = np.lexsort((ops.start_ns, ops.stream, ops.device))
    beside = (np.diff(ops.device[order]) == 0) & (np.diff(ops.stream[order]) == 0)
    name = ops.name[order]
    staging = np.zeros(len(order), dtype=np.bool_)
    staging[1:] |= beside & communicates[name[:-1]]
    staging[:-1] |= beside & communicates[name[1:]]
    return order[staging & is_copy[name]]


def _structure_of(
    trace: Trace, rows: Int64s, meanings: list[NameMeaning], whole: Int64s
) -> tuple[StepLayers | None, Int8s]:
    names, layers = trace.ops.name[rows], None
    if len(rows) <= _MOST_OPS:
        letters = "".join(meanings[name].letter for name in names.tolist())
        layers = find_layers(letters, whole[names], trace.ops.length_ns[rows])
    if layers is None:
        return None, np.zeros(0, dtype=np.int8)
    named = [meanings[name].role for name in names.tolist()]
    return layers, roles_in_step(letters, named, layers)


def _enter(
    structure: Structure, rows: Int64s, layers: StepLayers, roles: Int8s, by_name: Int8s
) -> None:
    """Enter what is known of some sequences with the same names: [sequences, ops]."""
    place = np.full(rows.shape[1], NO_LAYER, dtype=np.int32)
    for number, layer in enumerate(layers.layers):
        place[layer.start : layer.end] = number
    structure.layer[rows] = place
    structure.prologue[rows[:, : layers.layers[0].start]] = True
    structure.role[rows] = roles
    known = np.where(roles == by_name[rows[0]], BY_NAME, BY_PLACE)
    structure.confidence[rows] = np.where(roles == OTHER, UNKNOWN_ROLE, known)


def _sequences(timeline: Timeline) -> Iterator[tuple[int, Int64s]]:
    """(step, ops in launch order) of each step, on each of its devices the one with most ops first;
    then (-1, …) of each graph launch outside of steps."""
    trace, op_step = timeline.trace, timeline.steps.op_step
    ops = trace.ops
    order = np.lexsort((ops.start_ns, ops.graph_node_id, ops.launch))
    in_steps = order[op_step[order] >= 0]
    for step_rows in grouped(in_steps, op_step):
        devices = sorted(grouped(step_rows, ops.device), key=len, reverse=True)
        yield from ((int(op_step[rows[0]]), rows) for rows in devices)
    graphs = timeline.launches.call[timeline.launches.is_graph]
    outside = order[(op_step[order] < 0) & np.isin(ops.launch[order], graphs)]
    yield from ((-1, rows) for rows in grouped(outside, ops.launch))


def names_without_numbers(names: Sequence[str]) -> Int64s:
    """A number for each name, equal for names that differ in Inductor's number only."""
    numbers: dict[str, int] = {}
    texts = (_NUMBERED.sub(r"\1", name) for name in names)
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)


@dataclass(slots=True)
class _Step:
    """A step's letters and the role of each op so far, as words; "" is not known yet."""

    letters: str
    roles: list[str]

    def fill(self, start: int, end: int, role: str, kinds: str | None = None) -> None:
        """Give `role` to the ops in [start, end) that have none yet, of these kinds if given."""
        for i in range(max(start, 0), min(end, len(self.roles))):
            if not self.roles[i] and (kinds is None or self.letters[i] in kinds):
                self.roles[i] = role

    def places(self, kinds: str, start: int, end: int) -> list[int]:
        return [i for i in range(start, end) if self.letters[i] in kinds]


def roles_in_step(letters: str, named: list[str | None], layers: StepLayers | None) -> Int8s:
    """The role of each op, an index in `ROLES`.

    `letters` holds one letter an op, `named` the role that each op's name decides, `layers` the
    layers, None if the step has none: then a role follows from the kind alone.
    """
    step = _Step(letters if layers is None else layers.letters, [role or "" for role in named])
    if layers is not None:
        for layer in layers.layers:
            _layer(step, layer)
        _prologue(step, layers.layers[0].start)
        _epilogue(step, layers.layers[-1].end, len(layers.layers))
    roles = [
        role or ROLE_OF_LETTER.get(letter, "other")
        for role, letter in zip(step.roles, step.letters, strict=True)
    ]
    return np.array([_NUMBER[role] for role in roles], dtype=np.int8)


def _layer(step: _Step, layer: Layer) -> None:
    for kind in _FIXED:
        step.fill(layer.start, layer.end, ROLE_OF_LETTER[kind], kind)
    _before_attention(step, layer.start, layer.attention)
    step.fill(layer.attention, layer.after_attention, "attention")
    begin, last = feed_forward(step.letters, layer.after_attention, layer.end)
    step.fill(layer.start, layer.after_attention, "rope", "o")
    _output(step, layer.after_attention, begin)
    if last >= 0 and (own_input := step.places("P", last + 1, layer.end)):
        _feed_forward(step, begin, last, own_input[0])
        begin, last = own_input[0], own_input[-1]
    _feed_forward(step, begin, last, layer.end)


def _before_attention(step: _Step, start: int, end: int) -> None:
    products = step.places("P", start, end)
    if not products:
        step.fill(start, end, "norm", "nN+m*e")
        return
    step.fill(start, products[0], "norm")
    for first, following in zip(products, [*products[1:], end], strict=True):
        step.fill(first, first + 1, "qkv")
        step.fill(first, following, "qkv", "S")
        # Norms of q and k in several kernels, with the casts and products of elements around them.
        if qk_norm := _QK_NORM.search(step.letters, first + 1, following):
            step.fill(qk_norm.start(), qk_norm.end(), "qk_norm")
    step.fill(start, end, "qk_norm", "N")
    residual = step.letters.rfind("+", products[-1], end)
    step.fill(residual + 1 if residual >= 0 else end, end, "kv_write", "C")
    step.fill(products[-1], end, "copy", "m")
    step.fill(products[-1], end, "rope")
    step.fill(start, end, "qkv")


def _output(step: _Step, start: int, end: int) -> None:
    """From the attention to the feed-forward block: the O product, and what is before it."""
    products = step.places("P", start, end)
    if products:
        step.fill(start, products[0], "attention")
        step.fill(products[0], products[-1] + 1, "o")
        step.fill(products[-1], end, "o", "S")
    step.fill(start, end, "norm")


def _feed_forward(step: _Step, begin: int, last: int, end: int) -> None:
    routing = step.places("R", begin, end)
    experts = step.places("X", begin, end)
    if experts and not routing:
        # Programs that find their experts by themselves: the product before them is the router's.
        routing = step.places("P", begin, experts[0])[-1:]
    if routing:
        begin = _experts(step, begin, end, routing)
    products = step.places("PG", begin, end)
    if products:
        step.fill(begin, products[0], "norm")
        down = last if last in products else products[-1]
        for place in products:
            step.fill(place, place + 1, "down" if place >= down else "gate_up")
            step.fill(place + 1, place + 2, "down" if place >= down else "gate_up", "S")
        step.fill(products[0], down, "activation")
    step.fill(begin, end, "norm")


def _experts(step: _Step, begin: int, end: int, routing: list[int]) -> int:
    products = step.places("P", begin, routing[0] + 1)
    if (down := _dense_down(step, begin, products)) is not None:
        # An MLP beside the experts (Gemma 4).
        _feed_forward(step, begin, down, down + 1)
        begin, products = down + 1, products[-1:]
    if products:
        normed = step.places("nN*+", begin, products[0])
        step.fill(begin, normed[-1] + 1 if normed else begin, "norm")
        step.fill(begin, routing[0], "router")
    experts = [*step.places("z", routing[0], end), *step.places("X", begin, end)]
    experts.sort()
    first = experts[0] if experts else routing[-1] + 1
    step.fill(begin, first, "norm", "N")
    step.fill(begin, first, "router")
    last = experts[-1] + 1 if experts else end
    letters = step.letters
    ends = letters.find("P", last, end), letters.find("N", last, end), letters.rfind("+", last, end)
    tail = min((place for place in ends if place >= 0), default=end)
    step.fill(first, tail, "activation", "g")
    step.fill(first, tail, "experts")
    return tail


def _dense_down(step: _Step, begin: int, products: list[int]) -> int | None:
    """The down product of an MLP before the last of `products`, that of a router: it follows an
    activation, and the router's norm follows it."""
    activations = step.places("gG", begin, products[-1] if products else begin)
    if not activations:
        return None
    down = min(place for place in products if place > activations[-1])
    return down if step.places("nN", down, products[-1]) else None


def _prologue(step: _Step, end: int) -> None:
    """Embedding and rotary tables: a product among sines and cosines makes their angles, another
    inputs of the layers."""
    if step.places("ro", 0, end):
        step.fill(0, end, "rope", "Po")
    step.fill(0, end, "copy", "mCP")


def _epilogue(step: _Step, start: int, layers: int) -> None:
    """The final norm, what each layer's cache needs once a step, the head, and sampling."""
    letters, end = step.letters, len(step.letters)
    products = [i for i in step.places("P", start, end) if step.roles[i] in ("", "head")]
    first = products[0] if products else end
    if step.places("nN", start, first):
        step.fill(start, first, "norm", "nN*+e")
        casts = step.places("n", start, first)
        if casts:
            step.fill(start, casts[-1] + 4, "norm", "m")
    step.fill(start, end, "head", "PS")
    for equal in re.finditer(r"([em])\1*", letters[start:]):
        if len(equal[0]) == layers:
            step.fill(start + equal.start(), start + equal.end(), "kv_write")
    after = products[-1] + 1 if products else start
    if step.places("tRs", after, end):
        chosen = step.places("tRs", after, end)
        step.fill(chosen[0], end, "sampling", "tRzsgn*+eP")
