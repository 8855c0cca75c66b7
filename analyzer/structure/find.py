"""The structure of a whole trace: each op's layer and role, step by step."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from decodescope.analyzer.names.rules import NameMeaning, NameRules
from decodescope.analyzer.structure.layers import StepLayers, find_layers
from decodescope.analyzer.structure.places import OTHER, roles_in_step
from decodescope.analyzer.timing.timeline import Timeline
from decodescope.analyzer.trace import Bools, Int8s, Int32s, Int64s, Trace, grouped

NO_LAYER = -1
# Confidence of a role: from the name alone, from the place, unknown.
BY_NAME, BY_PLACE, UNKNOWN_ROLE = range(3)
KNOWN_BY = ("name", "place", "unknown")
# Inductor numbers its kernels in order of appearance.
_NUMBERED = re.compile(r"^(triton_\w*)_\d+$")
_MOST_OPS = 50_000


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
    meanings = rules.meanings(trace.names) if len(trace.ops) else []
    alone = roles_in_step("".join(one.letter for one in meanings), _named(meanings), None)
    by_name = alone[trace.ops.name]
    found = Structure(
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
        found.of_step.update(
            (step, (rows, layers)) for step, rows in sequences if longest[step] is rows
        )
        if layers is not None:
            _enter(found, np.stack([rows for _, rows in sequences]), layers, roles, by_name)
    return found


def _structure_of(
    trace: Trace, rows: Int64s, meanings: list[NameMeaning], whole: Int64s
) -> tuple[StepLayers | None, Int8s]:
    names = trace.ops.name[rows]
    if len(rows) > _MOST_OPS:
        return None, np.zeros(0, dtype=np.int8)
    letters = "".join(meanings[name].letter for name in names.tolist())
    layers = find_layers(letters, whole[names], trace.ops.length_ns[rows])
    if layers is None:
        return None, np.zeros(0, dtype=np.int8)
    named = [meanings[name].role for name in names.tolist()]
    return layers, roles_in_step(letters, named, layers)


def _enter(
    found: Structure, rows: Int64s, layers: StepLayers, roles: Int8s, by_name: Int8s
) -> None:
    """Enter what is known of some sequences with the same names: [sequences, ops]."""
    place = np.full(rows.shape[1], NO_LAYER, dtype=np.int32)
    for number, layer in enumerate(layers.layers):
        place[layer.start : layer.end] = number
    found.layer[rows] = place
    found.prologue[rows[:, : layers.layers[0].start]] = True
    found.role[rows] = roles
    known = np.where(roles == by_name[rows[0]], BY_NAME, BY_PLACE)
    found.confidence[rows] = np.where(roles == OTHER, UNKNOWN_ROLE, known)


def _sequences(timeline: Timeline) -> Iterator[tuple[int, Int64s]]:
    """(step, ops in launch order) of each step, on each of its devices the one with most ops first;
    then (-1, …) of each graph launch outside of steps."""
    trace, op_step = timeline.trace, timeline.steps.op_step
    ops = trace.ops
    order = np.lexsort((ops.start_ns, ops.graph_node_id, ops.launch))
    mine = order[op_step[order] >= 0]
    for step_rows in grouped(mine, op_step):
        devices = sorted(grouped(step_rows, ops.device), key=len, reverse=True)
        yield from ((int(op_step[rows[0]]), rows) for rows in devices)
    graphs = timeline.launches.call[timeline.launches.is_graph]
    outside = order[(op_step[order] < 0) & np.isin(ops.launch[order], graphs)]
    yield from ((-1, rows) for rows in grouped(outside, ops.launch))


def _named(meanings: list[NameMeaning]) -> list[str | None]:
    return [one.role for one in meanings]


def names_without_numbers(names: Sequence[str]) -> Int64s:
    """A number for each name, equal for names that differ in Inductor's number only."""
    numbers: dict[str, int] = {}
    texts = (_NUMBERED.sub(r"\1", name) for name in names)
    return np.array([numbers.setdefault(text, len(numbers)) for text in texts], dtype=np.int64)
