"""`python -m benchmarks` as scripts use it: options, output and exit codes."""

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
import torch

from benchmarks.__main__ import COMMANDS
from benchmarks.__main__ import benchmarks as group
from benchmarks.block import block_bench
from benchmarks.block.report import BlockBenchmark
from benchmarks.gemm import gemm_bench
from benchmarks.gemm.gemm_report import GemmBenchmark, GemmFigures, GemmSize
from benchmarks.kernels import kernel_bench
from benchmarks.kernels.report import KernelBenchmark, KernelFigures
from decodescope.variants.machine import environment
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.spec import VariantSpec
from tests.helpers.command import Command


@dataclass
class Asked:
    """What the benchmarks were called with, and what the kernel benchmark answers."""

    kernels: list[tuple[str, DecodeWorkload, str]] = field(default_factory=list)
    blocks: list[tuple[Any, ...]] = field(default_factory=list)
    gemms: list[tuple[Any, ...]] = field(default_factory=list)
    error: str | None = None


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
            1,
            model,
            workload.dtype,
            workload.batch,
            workload.context,
            1,
            1,
            None,
            None,
            {},
            (figures,),
            {},
        )

    def blocks(*arguments: Any) -> BlockBenchmark:
        seen.blocks.append(arguments[:-1])
        return BlockBenchmark(1, arguments[0], 1, 1, 1, 1, (), {})

    def gemms(rows: int, columns: int, tokens: Any, say: Any) -> GemmBenchmark:
        seen.gemms.append((rows, columns, tuple(tokens)))
        say("drawing 4 matrices")
        sizes = tuple(GemmSize(one, (GemmFigures("w8a8", seen.error),), {}) for one in tokens)
        return GemmBenchmark(1, rows, columns, 4, 128, 15, 3, 1, None, None, sizes, {})

    monkeypatch.setattr(gemm_bench, "run_gemm_bench", gemms)
    monkeypatch.setattr(environment, "require_gpu", lambda command: None)
    monkeypatch.setattr(kernel_bench, "run_kernel_bench", kernels)
    monkeypatch.setattr(block_bench, "run_block_bench", blocks)
    return seen


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without CUDA")
@pytest.mark.parametrize("command", ["kernels", "block", "gemm", "allreduce", "claims"])
def test_without_a_gpu_it_says_so(benchmarks: Command, command: str) -> None:
    done = benchmarks(command)
    assert (done.code, done.out) == (3, "")
    assert done.err.startswith(f"decodescope: {command}: ")
    assert "CUDA" in done.err


def test_kernels_are_measured_at_the_requested_shapes(
    benchmarks: Command, asked: Asked, tmp_path: Path
) -> None:
    path = tmp_path / "kernels.json"
    done = benchmarks("kernels", "--json", "-o", str(path))
    assert done.code == 0
    printed = msgspec.json.decode(done.out, type=KernelBenchmark)
    assert printed == msgspec.json.decode(path.read_bytes(), type=KernelBenchmark)
    options = ("--model", "qwen3-0.6b@random", "--batch", "4", "--context", "77", "--dtype", "fp16")
    options += ("--variant", "fp8")
    assert "qwen3-0.6b@random" in benchmarks("kernels", *options).out
    assert asked.kernels == [
        ("llama-3.2-1b@random", DecodeWorkload(1, 1024, 1, "bf16"), "fused"),
        ("qwen3-0.6b@random", DecodeWorkload(4, 77, 1, "fp16"), "fused+fp8_e4m3"),
    ]
    assert asked.blocks == []


def test_blocks_are_measured_at_four_lengths_or_the_requested_one(
    benchmarks: Command, asked: Asked
) -> None:
    assert benchmarks("block", "--json").code == 0
    options = ("--batch", "2", "--context", "99", "--dtype", "fp32")
    assert benchmarks("block", *options).code == 0
    assert asked.blocks == [
        ("qwen2.5-0.5b@random", 1, (64, 128, 256, 512), ("bf16", "fp16")),
        ("qwen2.5-0.5b@random", 2, (99,), ("fp32",)),
    ]
    assert asked.kernels == []


def test_a_failed_check_fails_the_command_after_its_output(
    benchmarks: Command, asked: Asked
) -> None:
    asked.error = "relative error 0.5"
    done = benchmarks("kernels", "--json")
    assert done.code != 0
    assert msgspec.json.decode(done.out, type=KernelBenchmark).kernels[0].serial is None
    assert done.err.splitlines()[-1] == "decodescope: kernels: o: relative error 0.5"


@pytest.mark.parametrize(
    "options",
    [
        ("--context", "0"),
        ("--batch", "0"),
        ("-o", "no/such/file"),
        ("--tokens", "5"),
        ("--table", "tiles.json"),
        ("--variant", "eager"),
        ("--variant", "fused+int9"),
    ],
)
def test_bad_usage_is_one_line(benchmarks: Command, asked: Asked, options: tuple[str, ...]) -> None:
    done = benchmarks("kernels", *options)
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) == 1
    assert (asked.kernels, asked.blocks) == ([], [])


def test_gemms_are_measured_at_each_number_of_tokens_once(
    benchmarks: Command, asked: Asked, tmp_path: Path
) -> None:
    path = tmp_path / "gemm.json"
    done = benchmarks("gemm", "--json", "-o", str(path))
    assert done.code == 0
    printed = msgspec.json.decode(done.out, type=GemmBenchmark)
    assert printed == msgspec.json.decode(path.read_bytes(), type=GemmBenchmark)
    assert "drawing 4 matrices" in done.err
    options = ("--rows", "64", "--columns", "100")
    done = benchmarks("gemm", *options, "--tokens", "33", "--tokens", "3", "--tokens", "3")
    assert done.code == 0
    assert "w8a8" in done.out
    assert asked.gemms == [
        (8192, 8192, (1, 2, 4, 8, 16, 32, 64)),
        (64, 100, (3, 33)),
    ]


def test_a_wrong_gemm_fails_the_command_after_its_output(benchmarks: Command, asked: Asked) -> None:
    asked.error = "relative error 0.5"
    done = benchmarks("gemm", "--json", "--tokens", "2")
    assert done.code != 0
    assert msgspec.json.decode(done.out, type=GemmBenchmark).sizes[0].gemms[0].times is None
    assert done.err.splitlines()[-1] == ("decodescope: gemm: w8a8 at 2 tokens: relative error 0.5")


@pytest.mark.parametrize(
    "options",
    [
        ("--rows", "15"),
        ("--columns", "0"),
        ("--tokens", "65"),
        ("--tokens", "0"),
        ("-o", "no/such/file"),
    ],
)
def test_bad_sizes_are_one_line(
    benchmarks: Command, asked: Asked, options: tuple[str, ...]
) -> None:
    done = benchmarks("gemm", *options)
    assert (done.code, done.out, asked.gemms) == (2, "", [])
    assert len(done.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "benchmarks: needs a command: analyzer or kernels or block"),
        (("--json",), "--json"),
        (("live",), "no command live: one of: analyzer, kernels, block"),
        (("kernel",), "no command kernel: did you mean kernels?"),
        (("block", "--context", "0"), "--context 0"),
        (("block", "--variant", "fp8"), "--variant"),
        (("analyzer", "--ranks", "1"), "--ranks"),
    ],
)
def test_an_unknown_command_or_option_is_one_line(
    benchmarks: Command, arguments: tuple[str, ...], words: str
) -> None:
    done = benchmarks(*arguments)
    assert done.code == 2
    assert words in done.only_line


def test_every_command_says_what_it_measures() -> None:
    for name in COMMANDS:
        command = group.get_command(click.Context(group), name)
        assert command is not None
        assert command.name == name
        assert command.help


@pytest.mark.parametrize("flag", [[], ["--json"]])
def test_a_benchmark_on_standard_output_is_one_json(benchmarks: Command, flag: list[str]) -> None:
    command = ["analyzer", "--repeats", "1", "--events", "1000"]
    done = benchmarks(*command, "-o", "-", *flag)
    assert done.code == 0
    assert json.loads(done.out)["events"] == 1000
