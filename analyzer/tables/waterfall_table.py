"""Where a step goes: the parts of its waterfall, of one trace or of several side by side."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from decodescope.analyzer.schema.answer import AnswerPart
from decodescope.analyzer.tables.columns import PERCENT, SIGNED_DURATION, TEXT, Column, Mark, Table
from decodescope.analyzer.vocabulary.words import part_words


@dataclass(frozen=True, slots=True)
class PartRow:
    """A part of the step, or all of it (`part` ""): its time in each step that has it."""

    part: str
    name: str
    ns: Mapping[str, int]


def part_names(waterfalls: Mapping[str, Sequence[AnswerPart]]) -> list[str]:
    """The parts that take time in any of the waterfalls, in the order of the longest one."""
    ordered = sorted(waterfalls.values(), key=len, reverse=True)
    return list(dict.fromkeys(part.part for parts in ordered for part in parts if part.ns))


def waterfall_table(
    waterfalls: Mapping[str, Sequence[AnswerPart]], *, shares: bool = True
) -> Table[PartRow]:
    """One row for each part, then the step that they add up to; `waterfalls` are by the titles of
    their columns. Without `shares`, only times."""
    ns = {
        name: {part.part: part.ns for part in parts} for name, parts in waterfalls.items() if parts
    }
    rows = [
        PartRow(part, part_words(part), {name: by[part] for name, by in ns.items() if part in by})
        for part in part_names(waterfalls)
    ]
    step_ns = {name: sum(by.values()) for name, by in ns.items()}
    first: Column[PartRow] = Column("name", "", TEXT, "The part of the step.")
    return Table(
        "parts",
        (first, *(column for name in ns for column in _columns(name, step_ns[name], shares))),
        [*rows, PartRow("", "step", step_ns)] if ns else [],
        mark=lambda row: Mark("part", row.part),
        tone=lambda row: "plain" if row.part else "strong",
        is_total=lambda row: not row.part,
    )


def _columns(name: str, step_ns: int, shares: bool) -> Iterator[Column[PartRow]]:
    def share(row: PartRow) -> float | None:
        return row.ns[name] / step_ns if step_ns and name in row.ns else None

    yield Column(name, name, SIGNED_DURATION, "The time.", lambda row: row.ns.get(name))
    if shares:
        yield Column(f"{name} share", "", PERCENT, "That time ÷ the step.", share, bar=32)
