"""Where one profiled step of each side goes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from decodescope.analyzer.schema.report import WaterfallPart
from decodescope.analyzer.tables.columns import SIGNED_DURATION, TEXT, Column, Table
from decodescope.analyzer.vocabulary.words import part_words


@dataclass(frozen=True, slots=True)
class PartRow:
    """A part of the step, or all of it; the ns of each side that has it."""

    name: str
    ns: Mapping[str, int]


def waterfalls_table(waterfalls: Mapping[str, Sequence[WaterfallPart]]) -> Table[PartRow]:
    """One column for each side with a waterfall; parts that are zero everywhere are omitted."""
    sides = {
        name: {part.part: part.ns for part in parts} for name, parts in waterfalls.items() if parts
    }
    rows = [
        PartRow(part_words(part), {side: ns[part] for side, ns in sides.items() if part in ns})
        for part in dict.fromkeys(part for ns in sides.values() for part in ns)
        if any(ns.get(part) for ns in sides.values())
    ]
    if sides:
        rows.append(PartRow("step", {side: sum(ns.values()) for side, ns in sides.items()}))
    first: Column[PartRow] = Column("name", "", TEXT, "The part of the step.")
    return Table("parts", (first, *(_side(name) for name in sides)), rows)


def _side(name: str) -> Column[PartRow]:
    return Column(
        name, name, SIGNED_DURATION, "Its time in this side.", lambda row: row.ns.get(name)
    )
