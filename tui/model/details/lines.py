"""A line of the details, and the lines that name the role of ops."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from decodescope.analyzer.text.formatting import count, percent
from decodescope.tui.model.view import Window

if TYPE_CHECKING:
    from decodescope.analyzer.trace import Bools


@dataclass(frozen=True, slots=True)
class DetailLine:
    """A label and a text of any length; without a label the text starts at the left edge."""

    label: str
    text: str
    tone: Literal["strong", "text", "dim", "good", "warn", "bad"] = "text"


_ROLES_SHOWN = 4
_INFERRED_LAYER = re.compile(r"(?:^|/)layer\.(\d+|\*)$")


def op_role_lines(window: Window, row: int) -> Iterator[DetailLine]:
    """The role of an op, how it is known, and its layer; nothing for what is not known."""
    from decodescope.analyzer.names.kinds import ROLES
    from decodescope.analyzer.structure.step_structure import KNOWN_BY, NO_LAYER, UNKNOWN_ROLE

    structure = window.analysis.structure
    known, layer = int(structure.confidence[row]), int(structure.layer[row])
    if known != UNKNOWN_ROLE:
        yield DetailLine("role", f"{ROLES[int(structure.role[row])]}, known by {KNOWN_BY[known]}")
    if layer != NO_LAYER:
        step = int(window.analysis.steps.op_step[row])
        yield DetailLine("layer", _layer_words(window, step, layer))


def kernel_role_lines(window: Window, name: str, within: str | None) -> Iterator[DetailLine]:
    """The roles of a kernel's launches, and how often it has each."""
    analysis = window.analysis
    if name not in analysis.trace.names:
        return
    chosen = analysis.trace.ops.name == analysis.trace.names.index(name)
    if within is not None:
        chosen = chosen & analysis.ranges.ops_within(within)
    roles = _roles(window, chosen)
    known_by = _known_by(window, chosen)
    if roles and (roles[0][0] != "other" or len(roles) > 1):
        several = len(roles) > 1
        parts = [f"{role} {count(ops)} \u00d7" if several else role for role, ops, _ in roles]
        yield DetailLine("role", f"{', '.join(parts)}, known by {known_by}")


def range_role_lines(window: Window, path: str, *, inferred: bool) -> Iterator[DetailLine]:
    """The roles of the ops of a range, those with most time first; of an inferred layer also its
    motif."""
    chosen = window.analysis.ranges.ops_within(path)
    if inferred and (layer := _INFERRED_LAYER.search(path)):
        yield from _motif_lines(window, layer[1], chosen)
    roles = _roles(window, chosen)
    if not roles or (roles[0][0] == "other" and len(roles) == 1):
        return
    if len(roles) == 1:
        yield DetailLine("role", f"{roles[0][0]}, known by {_known_by(window, chosen)}")
        return
    all_ns = sum(ns for _, _, ns in roles) or 1
    parts = [f"{role} {percent(ns / all_ns)} %" for role, _, ns in roles[:_ROLES_SHOWN]]
    if more := len(roles) - _ROLES_SHOWN:
        parts += [f"{more} more"] if more > 0 else []
    yield DetailLine("roles", ", ".join(parts))


def _motif_lines(window: Window, number: str, chosen: "Bools") -> Iterator[DetailLine]:
    """Which layer of how many, and its motif."""
    structure = window.report.structure
    if structure is None or not structure.layers:
        return
    if number != "*":
        steps = window.analysis.steps.op_step[chosen]
        yield DetailLine("layer", _layer_words(window, int(steps[0]), int(number)))
        return
    motifs = zip(structure.motif_layers, structure.layer_ops, strict=True)
    texts = [f"{count(layers)} of {count(ops)} ops" for layers, ops in motifs]
    kinds = "motif" if len(texts) == 1 else "motifs"
    yield DetailLine(
        "layers", f"{count(structure.layers)}, {len(texts)} {kinds}: {', '.join(texts)}"
    )


def _layer_words(window: Window, step: int, number: int) -> str:
    """ "3 of 24 (from 0), 17 ops, motif 1 of 2"."""
    _, step_layers = window.analysis.structure.of_step.get(step, (None, None))
    if step_layers is None or number >= len(step_layers.layers):
        return f"{number}"
    layer = step_layers.layers[number]
    text = f"{number} of {len(step_layers.layers)} (from 0), {count(layer.end - layer.start)} ops"
    motifs = len(step_layers.motif_ops)
    return text if motifs == 1 else f"{text}, motif {layer.motif + 1} of {motifs}"


def _roles(window: Window, chosen: "Bools") -> list[tuple[str, int, int]]:
    """(role, ops, attributed time in ns) of the chosen ops, those with most time first."""
    import numpy as np

    from decodescope.analyzer.names.kinds import ROLES

    role = window.analysis.structure.role[chosen]
    ops = np.bincount(role, minlength=len(ROLES))
    ns = np.bincount(role, window.analysis.attributed_ns[chosen], len(ROLES))
    order = np.lexsort((-ops, -ns))
    return [(ROLES[role], int(ops[role]), int(ns[role])) for role in order.tolist() if ops[role]]


def _known_by(window: Window, chosen: "Bools") -> str:
    """How the roles of the chosen ops are known, at worst."""
    from decodescope.analyzer.structure.step_structure import KNOWN_BY

    return KNOWN_BY[int(window.analysis.structure.confidence[chosen].max(initial=0))]
