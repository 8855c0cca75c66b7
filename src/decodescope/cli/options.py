"""The options that several commands share, and the worker configuration they form."""

import math
import os
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click
from click.exceptions import Exit

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.output_paths import output_path

if TYPE_CHECKING:
    from decodescope.analyzer.protocol.messages import WorkerConfig


class _File(click.Path):
    """An empty name would be the current folder; a script's unset variable is one."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("the name is empty.", param, ctx)
        return super().convert(value, param, ctx)


def _finite(_: click.Context, __: click.Parameter, value: float | None) -> float | None:
    """JSON, in which workers get their options, has neither NaN nor infinity."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a finite number.")
    return value


FILE = _File(path_type=Path)
# What transformers reads from a checkpoint's folder.
_CHECKPOINT_FILES = (
    "*config.json",
    "*.safetensors",
    "*.safetensors.index.json",
    "*.model",
    "*.py",
    "tokenizer*",
    "vocab*",
    "merges*",
    "*_tokens*.json",
    "chat_template*",
)
DEFAULT_TOKENS = 128

Command = Callable[..., None]
Option = Callable[[Command], Command]


def together(*options: Option) -> Option:
    """Several options as one decorator, listed by --help in this order."""

    def add(command: Command) -> Command:
        for option in reversed(options):
            command = option(command)
        return command

    return add


number_option = partial(click.option, metavar="N", type=int)
file_option = partial(click.option, metavar="FILE", type=FILE)
record_option = partial(click.option, "--record", metavar="FILE", type=output_path)
dtype_option = partial(click.option, "--dtype", type=click.Choice(["bf16", "fp16", "fp32"]))
json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
output_option = click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=output_path,
    help="Write the JSON to a file; - is standard output.",
)
device_option = click.option("--device", type=click.Choice(["cuda", "cpu"]))
rows_option = click.option(
    "--by",
    type=click.Choice(["kernel", "range", "gap"]),
    help="What each row of a CSV describes. [default: kernel]",
)


def chosen_rows(by: str | None, output_format: str) -> str:
    """The subject of each row, as `--by` says.

    Raises:
        InputError: `--by` was given, and the format is not CSV.
    """
    if by is not None and output_format != "csv":
        hint = (
            f"a table has --show {by}s"
            if output_format == "table"
            else f"{output_format} holds all"
        )
        raise InputError(f"--by {by}: only with CSV; {hint}")
    return by or "kernel"


variant_option = click.option("--variant", metavar="V", default="eager", show_default=True)

# What is decoded: live, run, compare.
model_options = together(
    click.option(
        "--model",
        metavar="M",
        help="A hub id, a checkpoint folder, a GGUF file, PRESET@random, or tiny. "
        "[default: llama-3.2-1b@random on a GPU, tiny without]",
    ),
    number_option("--batch", default=1, show_default=True),
    number_option("--context", help="Prompt tokens before the first decode step. [default: 128]"),
    click.option(
        "--device",
        type=click.Choice(["cuda", "cuda:0", "cpu"]),
        help="cuda:0 puts all ranks of --tp on the first GPU.",
    ),
    number_option(
        "--tp",
        type=click.IntRange(min=1),
        help="Tensor parallel: split the model over N ranks, each on a GPU. [default: 1]",
    ),
    click.option("--ep", is_flag=True, help="Split experts whole over the ranks, not each one."),
    click.option(
        "--trust-remote-code", is_flag=True, help="Allow a checkpoint to run its own Python code."
    ),
)

# How a token is chosen: live, run, compare.
sampling_options = together(
    click.option(
        "--temperature",
        metavar="T",
        type=float,
        callback=_finite,
        help="Draw tokens from softmax(logits / T). [default: greedy, as 0]",
    ),
    number_option("--top-k", help="Draw from the N most likely tokens only."),
    click.option(
        "--top-p",
        metavar="P",
        type=float,
        callback=_finite,
        help="Draw from the fewest tokens whose probabilities add up to P.",
    ),
    number_option("--seed", help="The same seed draws the same tokens. [default: 0]"),
)

# What is decoded after: live, run, compare.
prompt_options = together(
    click.option("--prompt", metavar="TEXT", help="Prompt text; its tokens are the context."),
    file_option(
        "--prompt-file", help="A UTF-8 file with the prompt; its last newline is left out."
    ),
    click.option("--prompt-ids", metavar="1,2,3", help="Prompt token ids; they are the context."),
)

# What is measured: run, compare.
measuring_options = together(
    number_option(
        "--tokens",
        default=DEFAULT_TOKENS,
        show_default=True,
        help="Decode steps: the first few warm up, the last few are profiled, the rest are timed.",
    ),
    prompt_options,
    dtype_option(),
)


def checkpoint_files(model: str | None) -> list[Path]:
    """The files that `--model` reads if it is a folder or a file, which no output may replace."""
    path = Path(model or ".").expanduser()
    if not model or not path.is_dir():
        return [path] if path.is_file() else []
    return [file for pattern in _CHECKPOINT_FILES for file in path.glob(pattern)]


def refuse_ranks(command: str) -> None:
    """Refuse a command that starts ranks itself in a process that is one already; rank 0 says so.

    Raises:
        InputError: it was started by torchrun, or another launcher.
    """
    from decodescope.variants.parallel.place import is_rank, place_of

    if is_rank(os.environ):
        if place_of(os.environ).ranks.rank:
            raise Exit(InputError.exit_code)
        raise InputError(f"{command}: starts its ranks itself; use --tp N in place of torchrun")


def worker_config(options: Mapping[str, Any]) -> "WorkerConfig":
    """The values of the options above as one structure; a command need not have all of them.

    Raises:
        InputError: two options contradict each other, the prompt ids are not numbers, or the
            prompt's file cannot be read.
    """
    from decodescope.analyzer.protocol.messages import WorkerConfig
    from decodescope.analyzer.schema.report import SamplingSettings
    from decodescope.variants.parallel.place import is_rank, place_of

    fields = {"variant": "eager", "tokens": DEFAULT_TOKENS, "prompt": None, **options}
    ids, file = fields.pop("prompt_ids", None), fields.pop("prompt_file", None)
    prompts = {"--prompt": fields["prompt"], "--prompt-file": file, "--prompt-ids": ids}
    chosen = [option for option, value in prompts.items() if value is not None]
    if len(chosen) > 1:
        raise InputError(f"{' and '.join(chosen)}: give one of them")
    ids = None if ids is None else _parse_ids(ids)
    if fields["context"] is not None and chosen:
        raise InputError("--context: the prompt's length is the context; give one of them")
    if file is not None:
        fields["prompt"] = _prompt_in(file)
    filters = {name: fields.pop(name) for name in ("top_k", "top_p", "seed")}
    sampling = None
    if temperature := fields.pop("temperature"):
        seed = filters.pop("seed") or 0
        sampling = SamplingSettings(temperature, **filters, seed=seed)
    elif unused := [name for name, value in filters.items() if value is not None]:
        named = ", ".join("--" + name.replace("_", "-") for name in unused)
        raise InputError(f"{named}: without a --temperature above 0, decoding is greedy; add one")
    started = place_of(os.environ).ranks.size if is_rank(os.environ) else 1
    tp = fields.pop("tp", None) or started
    check_ep(fields.get("ep", False), tp)
    return WorkerConfig(**fields, tp=tp, prompt_ids=ids, sampling=sampling)


def check_ep(ep: bool, tp: int) -> None:
    """Raise `InputError` for `--ep` without ranks."""
    if ep and tp == 1:
        raise InputError("--ep: splits experts over ranks; add --tp N")


def _prompt_in(file: Path) -> str:
    try:
        return file.read_bytes().decode().removesuffix("\n").removesuffix("\r")
    except OSError as error:
        raise InputError(f"--prompt-file {file}: cannot be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"--prompt-file {file}: byte {error.start + 1} is no UTF-8 text; give text in UTF-8"
        ) from error


def _parse_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"--prompt-ids {text}: must be whole numbers separated by commas, such as 1,2,3"
        ) from None
