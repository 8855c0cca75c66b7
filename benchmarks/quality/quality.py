"""What each format of weights and KV cache costs in quality, on held-out text.

Scores every format against the same model in fp32 and in bf16, with the same ids: perplexity and
its ratio, KL, top-1 agreement, error of the logits. There are three ways to the logits:

- rounding: the forward pass of transformers in fp32 on the quantised weights, which shows what the
  format costs by itself. Not for FP8 K and V, nor without rounded weights.
- forward: the same pass in bf16, over whole windows of text too.
  Runs anywhere. For W8A8, what each product reads is rounded as the kernels round it. Not for FP8
  K and V, which only the kernels round.
- steps: the fused kernels decode the text's own ids after a short prompt. This is what users run;
  on the CPU it needs TRITON_INTERPRET=1, and then few windows and positions.

The error's growth is that of the decoded positions, in bins, for both ways. The text is the part of
CPython's standard library that `tiny` was not trained on (`corpus.py`), of the Python
that runs this or of --stdlib; the record says whether it is that very text, by its digest.
"""

import platform
import shlex
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import rich_click as click
import torch
from rich.table import Table

from benchmarks.harness.records import RESULTS, write_record
from benchmarks.harness.tables import figures_table
from benchmarks.quality.corpus import Sources, digest_of, read_validation
from benchmarks.quality.formats import BF16, DTYPE, PROMPT, Format, made_formats, score
from benchmarks.quality.scores import Figures, Growth, Tally
from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import check_writable, is_stdout, output_path
from decodescope.analyzer.text.formatting import bytes_size, percent
from decodescope.cli.options import device_option, number_option
from decodescope.cli.output import print_table
from decodescope.variants.machine.environment import choose_device
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.quantized_weights import weight_tensors
from decodescope.variants.model.source import resolve_model, tiny_folder
from decodescope.variants.spec import VariantSpec

FORMATS = (
    BF16,
    *(
        name + words
        for name in ("fp8_e4m3", "fp8_e5m2", "fp8_e5m2_cast", "int8")
        for words in ("", "+head16", "+embedding8")
    ),
    *("int4", "int4+head16", "int4+embedding16"),
    *("int4_g64", "int4_g32", "int4_channel", "int4_asym"),
    *("mxfp4", "mxfp4+head16", "nvfp4", "nvfp4+head16"),
    *("w8a8", "w8a8+head16", "kv_fp8_e4m3", "kv_fp8_e5m2", "fp8_e4m3+kv_fp8_e4m3"),
)
# What `tiny` was trained with: its validation perplexity is that of such windows.
WINDOW = 1024
POSITIONS, BINS = 512, 8
# Logits of a batch of windows; on the CPU memory is shared with others.
_LOGITS = {"cuda": 1 << 26, "cpu": 1 << 24}


class Scored(msgspec.Struct, frozen=True):
    """One way to the logits: figures against each reference, and the error's growth against fp32
    (null for fewer positions than bins)."""

    fp32: Figures
    bf16: Figures
    growth: Growth | None


class FormatQuality(msgspec.Struct, frozen=True):
    """A format's figures; `no_steps` says why no kernels were scored."""

    format: str
    weight_bytes: int
    weight_bytes_ratio: float
    rounding: Scored | None
    forward: Scored | None
    steps: Scored | None
    no_steps: str | None


def text_windows(loaded: LoadedModel, sources: Sources, most: int | None) -> torch.Tensor:
    """Consecutive windows of ids [windows, length + 1] that cover the sources, which each begin
    with the start token; at most `most`, evenly spaced.

    Raises:
        InputError: a model without a tokenizer, or not one whole window.
    """
    if loaded.tokenizer is None:
        raise InputError(f"--model {loaded.name}: has no tokenizer, so no text can be scored")
    tokenizer = loaded.tokenizer
    start = tokenizer.eos_token_id if tokenizer.bos_token_id is None else tokenizer.bos_token_id
    texts = tokenizer([text for _, text in sources], add_special_tokens=False)["input_ids"]
    stream = torch.tensor([one for ids in texts for one in (start, *ids)], dtype=torch.int64)
    length = min(WINDOW, loaded.max_context or WINDOW)
    count = (len(stream) - 1) // length
    if count < 1:
        raise InputError(f"--stdlib: {len(stream)} tokens of text, {length + 1} are needed")
    windows = torch.stack([stream[i * length : (i + 1) * length + 1] for i in range(count)])
    if most is None or most >= count:
        return windows
    return windows[torch.linspace(0, count - 1, most).long()]


def quality(one: Format, bf16_bytes: int, positions: int) -> FormatQuality:
    """The figures of a format's sums."""
    size = _stored_bytes(one.loaded)
    rounding, forward, steps = (
        _scored(tallies, first, positions) if tallies else None
        for tallies, first in ((one.rounding, PROMPT), (one.forward, PROMPT), (one.steps, 0))
    )
    return FormatQuality(one.name, size, size / bf16_bytes, rounding, forward, steps, one.no_steps)


def _scored(tallies: dict[str, Tally], first: int, positions: int) -> Scored:
    growth = tallies["fp32"].growth(first, positions, BINS, PROMPT) if positions >= BINS else None
    return Scored(tallies["fp32"].figures(), tallies[BF16].figures(), growth)


def _stored_bytes(loaded: LoadedModel) -> int:
    return sum(tensor.nbytes for tensor in weight_tensors(loaded.model))


@dataclass(frozen=True, slots=True)
class Scoring:
    """What is scored; `windows` and `batch` are None where all, or as many as fit, are meant."""

    model: str
    formats: tuple[str, ...]
    windows: int | None
    batch: int | None
    positions: int
    stdlib: Path


def measured(options: Scoring, device: str) -> dict[str, Any]:
    """Every recorded figure."""
    sources = read_validation(options.stdlib)
    training = msgspec.json.decode((tiny_folder() / "training.json").read_bytes())
    held_out = digest_of(sources)
    if held_out != training["validation_sha256"]:
        sys.stderr.write(f"{options.stdlib}: not the text that was held out of training\n")
    loaded = load_model(resolve_model(options.model), device, DTYPE)
    windows = text_windows(loaded, sources, options.windows)
    length, vocabulary = windows.shape[1] - 1, loaded.vocab_size
    positions = min(options.positions, length - PROMPT)
    batch = options.batch or max(1, min(16, _LOGITS[device] // (length * vocabulary)))
    batch = min(batch, len(windows))
    formats = list(made_formats(options.formats, loaded, batch, positions, device))
    score(formats, loaded, windows, batch, positions)
    return {
        "model": options.model,
        "dtype": DTYPE,
        "device": device,
        "text": {
            "source": "held-out files of CPython's standard library",
            "python": platform.python_version(),
            "files": len(sources),
            "sha256": held_out,
            "held_out_of_training": held_out == training["validation_sha256"],
            "windows": len(windows),
            "positions_per_window": length,
            "batch_of_steps": batch,
            "prompt_of_steps": PROMPT,
            "positions_of_steps": positions,
        },
        "formats": [quality(one, _stored_bytes(loaded), positions) for one in formats],
    }


def quality_table(record: dict[str, Any], reference: str) -> Table:
    """The figures against a reference, a row for each format and way."""
    windows = record["text"]["windows"]
    title = f"{record['model']} against itself in {reference}, {windows} windows of held-out text"
    columns = ("bytes", "perplexity", "change", "KL, nats", "top-1")
    table = figures_table(title, "format", "way", *columns, names=2)
    for one, way, scored in _rows(record):
        found: Figures = getattr(scored, reference)
        change = f"{100 * (found.perplexity_ratio - 1):+.3f} %"
        if found.ratio_interval is not None:
            half = (found.ratio_interval.high - found.ratio_interval.low) / 2
            change += f" \u00b1 {100 * half:.3f}"
        table.add_row(
            *(one.format, way, bytes_size(one.weight_bytes), f"{found.perplexity:.4f}", change),
            *(f"{found.kl:.2e}", f"{percent(found.top1_agreement)} %"),
        )
    return table


def growth_table(record: dict[str, Any]) -> Table:
    """KL to fp32 in each bin of positions, a row for each format and way."""
    grown = [
        (one.format, way, scored.growth)
        for one, way, scored in _rows(record)
        if scored.growth is not None
    ]
    bins = [
        f"{growth.first_position + number * growth.positions_per_bin}"
        for *_, growth in grown[:1]
        for number in range(BINS)
    ]
    title = "KL to fp32 in thousandths of a nat, from position"
    table = figures_table(title, "format", "way", *bins, names=2)
    for name, way, growth in grown:
        table.add_row(name, way, *(f"{1e3 * kl:.3g}" for kl in growth.kl))
    return table


def _rows(record: dict[str, Any]) -> Iterator[tuple[FormatQuality, str, Scored]]:
    for one in record["formats"]:
        for way in ("rounding", "forward", "steps"):
            if (scored := getattr(one, way)) is not None:
                yield one, way, scored


def recorded_command(options: Scoring) -> str:
    """The command that scores this again, without its output file and where the text lies."""
    command = ["python", "-m", "benchmarks", "quality", "--model", options.model]
    if options.formats != FORMATS:
        command += ["--formats", ",".join(options.formats)]
    for option, usual in (("windows", None), ("batch", None), ("positions", POSITIONS)):
        if (given := getattr(options, option)) != usual:
            command += [f"--{option}", str(given)]
    return shlex.join(command)


def _format_list(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    for name in names:
        VariantSpec.parse(f"fused+{name}")
    return names


@click.command("quality")
@click.option("--model", metavar="M", default="tiny", show_default=True)
@device_option
@click.option("--formats", metavar="A,B,...", default=",".join(FORMATS), show_default=True)
@number_option("--windows", type=click.IntRange(1), help="So many, evenly spaced. [default: all]")
@number_option(
    "--batch", type=click.IntRange(1), help="Windows decoded by a step. [default: at most 16]"
)
@number_option(
    "--positions",
    type=click.IntRange(1),
    default=POSITIONS,
    show_default=True,
    help="Positions decoded by each step.",
)
@click.option(
    "--stdlib",
    type=Path,
    metavar="FOLDER",
    default=Path(sysconfig.get_path("stdlib")),
    help="The standard library with the text. [default: that of this Python]",
)
@click.option(
    "-o", "--output", metavar="FILE", type=output_path, help="Instead of quality-<model>.json."
)
def command(device: str | None, formats: str, output: Path | None, **given: Any) -> None:
    """What each format of weights and KV cache costs in quality, on held-out text."""
    options = Scoring(formats=_format_list(formats), **given)
    path = output or RESULTS / f"quality-{Path(options.model).name}.json"
    check_writable(path, "-o")
    record = measured(options, choose_device(device))
    write_record(path, record, recorded_command(options))
    if not is_stdout(path):
        print_table(record, partial(quality_table, reference="fp32"))
        print_table(record, partial(quality_table, reference=BF16))
        print_table(record, growth_table)
