"""`bench kernels` and `bench gemm` as scripts use them: options, output and exit codes."""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from decodescope.cli import main as cli
from decodescope.kernels.host.tile import Tile
from decodescope.variants.bench import block_bench, gemm_bench, kernel_bench, tile_tuning
from decodescope.variants.bench.gemm_report import GemmBenchmark, GemmFigures, GemmSize
from decodescope.variants.bench.report import (
    BlockBenchmark,
    KernelBenchmark,
    KernelFigures,
    RoundSpread,
    TuneBenchmark,
)
from decodescope.variants.machine import environment
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from decodescope.variants.steps.fused.tiling.shapes import StepTiles
from decodescope.variants.steps.fused.tiling.tuner import Trial, TunedOperation


@dataclass(frozen=True)
class Done:
    code: int
    out: str
    err: str


@dataclass
class Asked:
    """What the benchmarks were called with, and what the kernel benchmark answers."""

    kernels: list[tuple[str, DecodeWorkload, str]] = field(default_factory=list)
    blocks: list[tuple[Any, ...]] = field(default_factory=list)
    tunings: list[tuple[Any, ...]] = field(default_factory=list)
    gemms: list[tuple[Any, ...]] = field(default_factory=list)
    error: str | None = None


Command = Callable[..., Done]

SLOW, FAST, HUGE = Tile(1, 64), Tile(2, 128, 8, splits=4), Tile(4, 4096)
TUNED = TuneBenchmark(
    1, "m", "bf16", 1, 128, 128, 192, 60, {"o": "table"},
    StepTiles(SLOW, SLOW, FAST, SLOW, SLOW, SLOW),
    ((
        TunedOperation(
            "o", SLOW, FAST,
            (Trial(FAST, 7e5), Trial(SLOW, 8e5), Trial(HUGE, None, "shared memory\nmore")),
            (8e5, 8.1e5), (7e5, 7.1e5),
        ),
    ),),
    RoundSpread.of([8e5, 8.2e5, 7.9e5]), RoundSpread.of([7e5, 7.1e5, 6.9e5]),
    RoundSpread.of([1.14, 1.15, 1.16]), {},
)  # fmt: skip


@pytest.fixture
def decodescope(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command in this process."""

    def run(*arguments: str) -> Done:
        monkeypatch.setattr(sys, "argv", ["decodescope", *arguments])
        with pytest.raises(SystemExit) as end:
            cli.main()
        code = end.value.code
        assert code is None or isinstance(code, int)
        return Done(code or 0, *capfd.readouterr())

    return run


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """Benchmarks that measure nothing, on a machine that seems to have a GPU."""
    seen = Asked()

    def kernels(
        model: str, workload: DecodeWorkload, spec: VariantSpec, say: object
    ) -> KernelBenchmark:
        seen.kernels.append((model, workload, str(spec)))
        figures = KernelFigures(
            "o", "linear_residual", "2 x 2", 1, 64, None, 1, 1, True, None, 0.1, seen.error
        )
        return KernelBenchmark(
            1, model, workload.dtype, workload.batch, workload.context, 1, 1, None, None, {},
            (figures,), {},
        )  # fmt: skip

    def blocks(*arguments: Any) -> BlockBenchmark:
        seen.blocks.append(arguments[:-1])
        return BlockBenchmark(1, arguments[0], 1, 1, 1, 1, (), {})

    def tunings(*arguments: Any) -> TuneBenchmark:
        seen.tunings.append(arguments[:-1])
        arguments[-1]("measuring 2 tiles")
        return TUNED

    def gemms(rows: int, columns: int, tokens: Any, table: Path | None, say: Any) -> GemmBenchmark:
        seen.gemms.append((rows, columns, tuple(tokens), table))
        say("drawing 4 matrices")
        sizes = tuple(GemmSize(one, (GemmFigures("w8a8", seen.error),), {}) for one in tokens)
        return GemmBenchmark(1, rows, columns, 4, 128, 15, 3, 1, None, None, sizes, {})

    monkeypatch.setattr(gemm_bench, "run_gemm_bench", gemms)
    monkeypatch.setattr(tile_tuning, "run_tuning", tunings)
    monkeypatch.setattr(environment, "require_gpu", lambda bench: None)
    monkeypatch.setattr(kernel_bench, "run_kernel_bench", kernels)
    monkeypatch.setattr(block_bench, "run_block_bench", blocks)
    return seen


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize(
    "command", [("kernels",), ("kernels", "--block"), ("kernels", "--tune"), ("gemm",)]
)
def test_without_a_gpu_it_says_so(decodescope: Command, command: tuple[str, ...]) -> None:
    done = decodescope("bench", *command)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"decodescope: bench {command[0]}: ")
    assert "CUDA" in done.err


def test_kernels_are_measured_at_the_requested_shapes(
    decodescope: Command, asked: Asked, tmp_path: Path
) -> None:
    path = tmp_path / "kernels.json"
    done = decodescope("bench", "kernels", "--json", "-o", str(path))
    assert done.code == 0
    printed = msgspec.json.decode(done.out, type=KernelBenchmark)
    assert printed == msgspec.json.decode(path.read_bytes(), type=KernelBenchmark)
    options = ("--model", "qwen3-0.6b@random", "--batch", "4", "--context", "77", "--dtype", "fp16")
    options += ("--variant", "fp8")
    assert "qwen3-0.6b@random" in decodescope("bench", "kernels", *options).out
    assert asked.kernels == [
        ("llama-3.2-1b@random", DecodeWorkload(1, 1024, 1, "bf16"), "fused"),
        ("qwen3-0.6b@random", DecodeWorkload(4, 77, 1, "fp16"), "fused+fp8_e4m3"),
    ]
    assert asked.blocks == []


def test_blocks_are_measured_at_four_lengths_or_the_requested_one(
    decodescope: Command, asked: Asked
) -> None:
    assert decodescope("bench", "kernels", "--block", "--json").code == 0
    options = ("--batch", "2", "--context", "99", "--dtype", "fp32")
    assert decodescope("bench", "kernels", "--block", *options).code == 0
    assert asked.blocks == [
        ("qwen2.5-0.5b@random", 1, (64, 128, 256, 512), ("bf16", "fp16")),
        ("qwen2.5-0.5b@random", 2, (99,), ("fp32",)),
    ]
    assert asked.kernels == []


def test_a_failed_check_fails_the_command_after_its_output(
    decodescope: Command, asked: Asked
) -> None:
    asked.error = "relative error 0.5"
    done = decodescope("bench", "kernels", "--json")
    assert done.code != 0
    assert msgspec.json.decode(done.out, type=KernelBenchmark).kernels[0].serial is None
    assert done.err.splitlines()[-1] == "decodescope: bench kernels: o: relative error 0.5"


def test_tiles_are_tuned_for_the_cache_of_the_run(
    decodescope: Command, asked: Asked, tmp_path: Path
) -> None:
    done = decodescope("bench", "kernels", "--tune", "--json")
    assert done.code == 0
    assert msgspec.json.decode(done.out, type=TuneBenchmark) == TUNED
    assert "measuring 2 tiles" in done.err
    options = ("--model", "qwen3-0.6b@random", "--batch", "4", "--context", "77", "--tokens", "9")
    table = tmp_path / "tiles.json"
    options += ("--variant", "fused+graph+int8+head16-pdl")
    assert decodescope("bench", "kernels", "--tune", *options, "--table", str(table)).code == 0
    plain, narrow = VariantSpec("fused"), VariantSpec.parse("fused+int8+head16")
    assert asked.tunings == [
        ("llama-3.2-1b@random", DecodeWorkload(1, 128, 128, "bf16"), plain, None),
        ("qwen3-0.6b@random", DecodeWorkload(4, 77, 9, "bf16"), narrow, table),
    ]
    assert (asked.kernels, asked.blocks) == ([], [])


def test_the_ranking_marks_the_chosen_tile_and_says_why_one_is_not_possible(
    decodescope: Command, asked: Asked
) -> None:
    out = decodescope("bench", "kernels", "--tune").out
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
        ("--block", "--tune"),
        ("--tokens", "5"),
        ("--table", "tiles.json"),
        ("--tune", "--tokens", "0"),
        ("--tune", "--table", "no/such/file"),
        ("--variant", "eager"),
        ("--variant", "fused+int9"),
        ("--block", "--variant", "fp8"),
    ],
)
def test_bad_usage_is_one_line(
    decodescope: Command, asked: Asked, options: tuple[str, ...]
) -> None:
    done = decodescope("bench", "kernels", *options)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert (asked.kernels, asked.blocks, asked.tunings) == ([], [], [])


def test_gemms_are_measured_at_each_number_of_tokens_once(
    decodescope: Command, asked: Asked, tmp_path: Path
) -> None:
    path, table = tmp_path / "gemm.json", tmp_path / "tiles.json"
    done = decodescope("bench", "gemm", "--json", "-o", str(path))
    assert done.code == 0
    printed = msgspec.json.decode(done.out, type=GemmBenchmark)
    assert printed == msgspec.json.decode(path.read_bytes(), type=GemmBenchmark)
    assert "drawing 4 matrices" in done.err
    options = ("--rows", "64", "--columns", "100", "--table", str(table))
    done = decodescope(
        "bench", "gemm", *options, "--tokens", "33", "--tokens", "3", "--tokens", "3"
    )
    assert done.code == 0
    assert "w8a8" in done.out
    assert asked.gemms == [
        (8192, 8192, (1, 2, 4, 8, 16, 32, 64), None),
        (64, 100, (3, 33), table),
    ]


def test_a_wrong_gemm_fails_the_command_after_its_output(
    decodescope: Command, asked: Asked
) -> None:
    asked.error = "relative error 0.5"
    done = decodescope("bench", "gemm", "--json", "--tokens", "2")
    assert done.code != 0
    assert msgspec.json.decode(done.out, type=GemmBenchmark).sizes[0].gemms[0].times is None
    assert done.err.splitlines()[-1] == (
        "decodescope: bench gemm: w8a8 at 2 tokens: relative error 0.5"
    )


@pytest.mark.parametrize(
    "options",
    [
        ("--rows", "15"),
        ("--columns", "0"),
        ("--tokens", "65"),
        ("--tokens", "0"),
        ("-o", "no/such/file"),
        ("--table", "no/such/file"),
    ],
)
def test_bad_sizes_are_one_line(
    decodescope: Command, asked: Asked, options: tuple[str, ...]
) -> None:
    done = decodescope("bench", "gemm", *options)
    assert (done.code, done.out, asked.gemms) == (2, "", [])
    assert len(done.err.splitlines()) == 1
