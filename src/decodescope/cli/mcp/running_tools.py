"""The tools that measure: `run` and `compare`, each the command line in a process of its own.

So the server never imports torch, and what fails there ends only its process.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Literal, TypeVar

import anyio
import msgspec
from msgspec import Meta, Struct

from decodescope.analyzer.errors import InputError, process_end
from decodescope.analyzer.schema.comparison_report import Comparison
from decodescope.analyzer.schema.run_report import RunReport
from decodescope.cli.mcp.answers import Figures, figures_of, findings_of, page
from decodescope.cli.mcp.tool_host import ToolHost
from decodescope.cli.mcp.trace_tools import ANSWER, Amount, PathText, ShortText

_GRACE_S = {signal.SIGTERM: 0.5, signal.SIGKILL: 10.0}
_RUN = (
    "model",
    "weights",
    "variant",
    "device_name",
    "dtype",
    "batch",
    "context",
    "timed_steps",
    "tokens_per_s",
    "step_ns",
    "launch_calls_per_step",
    "gpu_ops_per_step",
    "gpu_idle_fraction",
    "bytes_per_step",
    "bandwidth",
)
_ACCURACY = ("positions", "logit_rel_error", "kl", "top1_agreement", "perplexity_ratio")
_MOST_VARIANTS = 8
_Result = TypeVar("_Result")


class MeasuringArguments(Struct, frozen=True, forbid_unknown_fields=True):
    model: ShortText | None = None
    batch: Amount = 1
    context: Amount | None = None
    tokens: Amount = 128
    dtype: Literal["bf16", "fp16", "fp32"] | None = None
    device: Literal["cuda", "cpu"] | None = None


class RunArguments(MeasuringArguments, frozen=True):
    variant: ShortText = "eager"
    trace: (
        Annotated[PathText, Meta(description="keep the profiled window here, .json.gz")] | None
    ) = None


class CompareArguments(MeasuringArguments, frozen=True, kw_only=True):
    variants: Annotated[
        tuple[ShortText, ...],
        Meta(min_length=2, max_length=_MOST_VARIANTS, description="the first is the base"),
    ]
    repeats: Annotated[int, Meta(ge=1, le=100)] = 5
    out: Annotated[PathText, Meta(description="a folder for traces and reports")] | None = None


async def run_tool(host: ToolHost, arguments: RunArguments) -> str:
    host.must_run()
    given: Figures = {"variant": arguments.variant}
    if arguments.trace is not None:
        given["trace"] = host.output(arguments.trace)
    report = await _measured(host, "run", arguments, given, RunReport)
    head = figures_of(report, *_RUN) | {"answer": figures_of(report.answer, *ANSWER)}
    if arguments.trace is not None:
        head["trace"] = arguments.trace
    head |= findings_of(report.health.findings)
    parts = report.answer.parts
    return page(head, "parts", map(figures_of, parts), 0, len(parts))


async def compare_tool(host: ToolHost, arguments: CompareArguments) -> str:
    host.must_run()
    given: Figures = {"variants": ",".join(arguments.variants), "repeats": arguments.repeats}
    if arguments.out is not None:
        given["out"] = host.new_folder(arguments.out)
    comparison = await _measured(host, "compare", arguments, given, Comparison)
    result, first = comparison.comparison, comparison.runs[0]
    head = figures_of(first, "model", "device_name", "dtype", "batch", "context")
    head |= {"rounds": result.rounds, "variants": list(_rates(comparison))}
    if arguments.out is not None:
        head["out"] = arguments.out
    head |= findings_of(result.findings)
    rows = (figures_of(pair, "base", "other", "speed") for pair in result.pairs)
    return page(head, "pairs", rows, 0, len(result.pairs))


def _rates(comparison: Comparison) -> Iterator[Figures]:
    for rates in comparison.comparison.variants:
        row = figures_of(rates, "variant", "mean", "interval")
        row = {"tokens_per_s" if key == "mean" else key: value for key, value in row.items()}
        if rates.accuracy is not None:
            row["accuracy"] = figures_of(rates.accuracy, *_ACCURACY)
        yield row


async def _measured(
    host: ToolHost,
    command: str,
    arguments: MeasuringArguments,
    given: Figures,
    result: type[_Result],
) -> _Result:
    """The result that the command prints with --json.

    Raises:
        InputError: it failed, with the line that it ended with.
    """
    options = {name: getattr(arguments, name) for name in MeasuringArguments.__struct_fields__}
    options |= given | {"model": host.places.model(arguments.model)}
    return msgspec.json.decode(await _output(command, options), type=result)


async def _output(command: str, options: Figures) -> bytes:
    lines = [f"--{name}={value}" for name, value in options.items() if value is not None]
    # Cancelled while it starts, asyncio would kill it without waiting for its end.
    with anyio.CancelScope(shield=True):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-P", "-m", "decodescope", command, "--json", *lines),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    try:
        out, err = await process.communicate()
    finally:
        with anyio.CancelScope(shield=True):
            await _end(process)
    assert process.returncode is not None
    if process.returncode:
        said = err.decode(errors="replace").splitlines()
        last = said[-1] if said else f"its process {process_end(process.returncode)}"
        raise InputError(last.removeprefix("decodescope: "))
    return out


async def _end(process: asyncio.subprocess.Process) -> None:
    """End a process with its group; it may first end what it started."""
    for number, grace_s in _GRACE_S.items():
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with anyio.move_on_after(grace_s):
            await process.wait()
