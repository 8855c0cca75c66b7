"""The table of parts: its order, what it leaves out, and whether its rows add up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from rich.cells import cell_len

from decodescope.analyzer.schema.answer import Answer, AnswerPart, HostFrame
from decodescope.analyzer.tables.answer_table import answer_table
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.analyzer.views.table_parts import answer_block
from decodescope.analyzer.vocabulary.answer_words import lines_of
from tests.helpers.hostile import anything
from tests.helpers.rich_report import text_of

PARTS = (
    AnswerPart("gate_up", "kernels", 6_580_000, 4_400_000, 2_180_000, 0.658, 80, "nvjet_tst_64x8"),
    AnswerPart("host_wait", "host", 1_000_000, None, 1_000_000, 0.1),
    AnswerPart("o", "kernels", 1_420_000, 1_500_000, -80_000, 0.142, 80, "nvjet_tst_8x64"),
    AnswerPart("profiler", "profiler", 1_000_000, None, 1_000_000, 0.1),
)
FRAME = HostFrame("vllm/v1/engine/core.py(410): step", "aten::mul", None, 7)
ANSWER = Answer("decode", 3, 1, 10**7, 10**7, limit_ns=5_900_000, parts=PARTS, host=(FRAME,))
NO_LIMIT = replace(
    ANSWER,
    limit_ns=None,
    parts=tuple(
        replace(part, limit_ns=None, over_ns=None if part.kernel else part.ns) for part in PARTS
    ),
)


def block(answer: Answer, width: int, most: int | None = None) -> list[str]:
    text = text_of(answer_block_of(answer, width, most), width)
    return [line.rstrip() for line in text.splitlines()]


def answer_block_of(answer: Answer, width: int, most: int | None) -> object:
    from rich.console import Group

    return Group(*answer_block(lines_of(answer), answer, width, most))


def test_rows_have_time_limit_and_what_is_between() -> None:
    lines = block(ANSWER, 120)
    assert lines[2].split() == [
        *("over", "the", "limit", "time", "limit", "over", "of", "step", "%"),
        *("of", "limit", "%", "ops"),
    ]
    assert lines[3].split()[:8] == ["gate_up", "6.58", "ms", "4.40", "ms", "2.18", "ms", "21.8"]
    assert lines[3].split()[-3:] == ["66.9", "80", "██"]
    assert "nvjet tst 64x8" in lines[3]
    assert lines[4].split()[:9] == [
        "waiting",
        "for",
        "the",
        "host",
        "1.00",
        "ms",
        UNKNOWN,
        "1.00",
        "ms",
    ]
    assert "vllm/v1/engine/core.py(410): step" in lines[4]
    assert lines[5].split()[5:7] == ["-80.0", "µs"]
    assert lines[6].strip().startswith("cost of the profiler")


def test_without_a_limit_there_are_times_and_shares() -> None:
    lines = block(NO_LIMIT, 100)
    assert lines[2].split() == ["part", "time", "of", "step", "%", "ops"]
    assert lines[3].split()[:4] == ["gate_up", "6.58", "ms", "65.8"]


def test_the_first_parts_and_how_many_follow() -> None:
    lines = block(ANSWER, 80, 2)
    assert "  and 2 more parts" in lines
    assert sum(part.ns for part in answer_table(ANSWER).rows) == ANSWER.whole_ns
    assert len(answer_table(ANSWER, 2).rows) == 2


@pytest.mark.parametrize("width", [60, 80, 100])
@pytest.mark.parametrize("answer", [ANSWER, NO_LIMIT])
def test_time_and_loss_are_in_every_width(answer: Answer, width: int) -> None:
    lines = block(answer, width)
    assert max(map(len, lines)) <= width
    assert "6.58 ms" in lines[3] or "6.58 ms" in lines[4]
    assert any("2.18 ms" in line for line in lines) == (answer is ANSWER)
    assert not any(line.endswith("…") for line in lines)


@given(st.lists(anything, min_size=2, max_size=8, unique=True), st.integers(60, 120))
def test_parts_of_any_kernels_fit(names: list[str], width: int) -> None:
    parts = tuple(replace(PARTS[0], part=f"part {n}", kernel=name) for n, name in enumerate(names))
    lines = block(replace(ANSWER, parts=parts), width)
    assert max(map(cell_len, lines)) <= width
