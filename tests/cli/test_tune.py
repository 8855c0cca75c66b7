"""`tune` as scripts use it: options, output and exit codes."""

from typing import Any

import msgspec
import pytest
import torch

from decodescope.kernels.host.tile import Tile
from decodescope.variants.machine import environment
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.tiling.tuner import Trial, TunedOperation
from decodescope.variants.tuning import tile_tuning
from decodescope.variants.tuning.report import RoundSpread, TuningReport
from tests.helpers.command import Command

SLOW, FAST, HUGE = Tile(1, 64), Tile(2, 128, 8, splits=4), Tile(4, 4096)
TUNED = TuningReport(
    1,
    "m",
    "bf16",
    1,
    128,
    128,
    192,
    60,
    {"o": "table"},
    {"qkv": SLOW, "o": FAST, "head": SLOW},
    (
        (
            TunedOperation(
                "o",
                SLOW,
                FAST,
                (Trial(FAST, 7e5), Trial(SLOW, 8e5), Trial(HUGE, None, "shared memory\nmore")),
                (8e5, 8.1e5),
                (7e5, 7.1e5),
            ),
        ),
    ),
    RoundSpread.of([8e5, 8.2e5, 7.9e5]),
    RoundSpread.of([7e5, 7.1e5, 6.9e5]),
    RoundSpread.of([1.14, 1.15, 1.16]),
    {},
)


@pytest.fixture
def tunings(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What tuning was asked for; it measures nothing, on a machine that seems to have a GPU."""
    asked: list[tuple[Any, ...]] = []

    def tuned(*arguments: Any) -> TuningReport:
        asked.append(arguments[:-1])
        arguments[-1]("measuring 2 tiles")
        return TUNED

    monkeypatch.setattr(tile_tuning, "run_tuning", tuned)
    monkeypatch.setattr(environment, "require_gpu", lambda command: None)
    return asked


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
def test_without_a_gpu_it_says_so(decodescope: Command) -> None:
    done = decodescope("tune")
    assert done.code == 3
    assert done.only_line.startswith("decodescope: tune: ")
    assert "CUDA" in done.err


def test_tiles_are_tuned_for_the_cache_of_the_run(
    decodescope: Command, tunings: list[tuple[Any, ...]]
) -> None:
    done = decodescope("tune", "--json")
    assert done.code == 0
    assert msgspec.json.decode(done.out, type=TuningReport) == TUNED
    assert "measuring 2 tiles" in done.err
    options = ("--model", "qwen3-0.6b@random", "--batch", "4", "--context", "77", "--tokens", "9")
    options += ("--variant", "fused+graph+int8+head16-pdl", "--tp", "2", "--ep")
    assert decodescope("tune", *options).code == 0
    plain, narrow = VariantSpec("fused"), VariantSpec.parse("fused+int8+head16")
    assert tunings == [
        ("llama-3.2-1b@random", DecodeWorkload(1, 128, 128, "bf16"), plain, 1, False),
        ("qwen3-0.6b@random", DecodeWorkload(4, 77, 9, "bf16"), narrow, 2, True),
    ]


def test_the_ranking_marks_the_chosen_tile_and_says_why_one_is_not_possible(
    decodescope: Command, tunings: list[tuple[Any, ...]]
) -> None:
    out = decodescope("tune").out
    rows = [line.split() for line in out.splitlines() if " x " in line]
    assert rows[0] == ["o", "2", "x", "128,", "8,", "1,", "4", "chosen", "700"]
    assert rows[1] == ["1", "x", "64,", "4,", "1,", "1", "before", "800"]
    assert "not possible: shared memory" in out
    assert "step µs: 800 (790-820) to 700 (690-710); before/after 1.15 (1.14-1.16)" in out


@pytest.mark.parametrize(
    "options",
    [
        ("--context", "0"),
        ("--batch", "0"),
        ("-o", "no/such/file"),
        ("--block",),
        ("--tokens", "0"),
        ("--table", "tiles.json"),
        ("--variant", "eager"),
        ("--variant", "fused+int9"),
    ],
)
def test_bad_usage_is_one_line(
    decodescope: Command, tunings: list[tuple[Any, ...]], options: tuple[str, ...]
) -> None:
    done = decodescope("tune", *options)
    assert done.code == 2
    assert done.only_line
    assert tunings == []
