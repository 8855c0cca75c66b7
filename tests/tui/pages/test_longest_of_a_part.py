"""From a part of the answer to the op or the gap that it is about."""

from pathlib import Path

from decodescope.analyzer.names.rules import ROLES, kernel_meaning
from decodescope.analyzer.schema.report import GAP_CLASSES
from decodescope.analyzer.trace import Intervals
from decodescope.analyzer.vocabulary.words import part_words
from decodescope.tui.model.picks import GapPick, OpPick
from decodescope.tui.model.view import Window
from tests.helpers.app.recorded import app_of, press
from tests.helpers.scripted import settle, text_of


async def test_enter_shows_the_longest_op_or_gap_of_a_part(eager: Path) -> None:
    """By brute force: every op of the step with the part's role or family, every part of a gap."""
    app = app_of(eager)
    async with app.run_test(size=(80, 16)) as pilot:
        await settle(pilot)
        window = app._painter.shown().window
        for part in window.report.answer.parts:
            assert part_words(part.part) in text_of(app).partition("Where the step goes")[2]
            await press(pilot, "enter")
            pick, page = app._focus.selection.pick, app._focus.page
            if part.part == "profiler":
                assert (pick, page) == (None, "step")
            else:
                assert page == "timeline"
                assert pick in _longest(window, part.part)
            await press(pilot, "escape", "1", "down")


def _longest(window: Window, part: str) -> set[OpPick | GapPick]:
    """The ops of a part that are longest inside the step of the answer, or the gaps."""
    found = window.analysis
    start_ns = int(found.steps.span.start_ns[found.median_step])
    end_ns = start_ns + int(found.steps.time_ns[found.median_step])
    lengths: dict[OpPick | GapPick, int] = {}

    def count(pick: OpPick | GapPick, events: Intervals, row: int) -> None:
        first, last = int(events.start_ns[row]), int(events.end_ns[row])
        lengths[pick] = min(last, end_ns) - max(first, start_ns)

    for row in range(len(found.parts)):
        if GAP_CLASSES[found.parts.kind[row]] == part:
            count(GapPick(int(found.parts.gap[row])), found.parts, row)
    for row in range(len(found.trace.ops)):
        role = ROLES[found.structure.role[row]]
        name = found.trace.names[found.trace.ops.name[row]]
        if role == "other":
            role = kernel_meaning(name).family
        if part == ("memcpy" if name.startswith("Mem") else role):
            count(OpPick(row), found.trace.ops, row)
    return {pick for pick, length_ns in lengths.items() if length_ns == max(lengths.values())}
