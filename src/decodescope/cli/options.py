"""What several commands ask for: the options that say what is decoded, and what they add up to."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from decodescope.analyzer.errors import InputError

if TYPE_CHECKING:
    from decodescope.analyzer.protocol import WorkerConfig
    from decodescope.analyzer.schema.report import SamplingSettings

FILE = click.Path(path_type=Path)
DEFAULT_TOKENS = 128

Command = Callable[..., None]


def _with(options: tuple[Callable[[Command], Command], ...], command: Command) -> Command:
    for option in reversed(options):
        command = option(command)
    return command


def model_options(command: Command) -> Command:
    """The options that say what is decoded; shared by `live`, `run` and `compare`."""
    return _with(
        (
            click.option(
                "--model",
                metavar="M",
                help="A hub id, a checkpoint folder, PRESET@random, or tiny. "
                "[default: llama-3.2-1b@random on a GPU, tiny without]",
            ),
            click.option("--batch", metavar="N", type=int, default=1, show_default=True),
            click.option(
                "--context",
                metavar="N",
                type=int,
                help="Prompt tokens before the first decode step. [default: 128]",
            ),
            click.option("--device", type=click.Choice(["cuda", "cpu"])),
            click.option(
                "--trust-remote-code",
                is_flag=True,
                help="Allow a checkpoint to run its own Python code.",
            ),
        ),
        command,
    )


def variant_option(command: Command) -> Command:
    """The one variant of `live` and `run`."""
    return click.option("--variant", metavar="V", default="eager", show_default=True)(command)


def sampling_options(command: Command) -> Command:
    """The options that say how a token is chosen; shared by `live`, `run` and `compare`."""
    return _with(
        (
            click.option(
                "--temperature",
                metavar="T",
                type=float,
                help="Draw tokens from softmax(logits / T). [default: greedy, as 0]",
            ),
            click.option(
                "--top-k", metavar="N", type=int, help="Draw from the N most likely tokens only."
            ),
            click.option(
                "--top-p",
                metavar="P",
                type=float,
                help="Draw from the fewest tokens whose probability adds up to P.",
            ),
            click.option(
                "--seed",
                metavar="N",
                type=int,
                help="The same seed draws the same tokens. [default: 0]",
            ),
        ),
        command,
    )


def measuring_options(command: Command) -> Command:
    """The options of what is measured; shared by `run` and `compare`."""
    return _with(
        (
            click.option(
                "--tokens",
                metavar="N",
                type=int,
                default=DEFAULT_TOKENS,
                show_default=True,
                help="Decode steps: the first few warm up, the last few are profiled, "
                "the others are timed.",
            ),
            click.option(
                "--prompt", metavar="TEXT", help="Prompt text; its tokens are the context."
            ),
            click.option(
                "--prompt-ids", metavar="1,2,3", help="Prompt token ids; they are the context."
            ),
            click.option("--dtype", type=click.Choice(["bf16", "fp16", "fp32"])),
        ),
        command,
    )


def worker_config(
    *,
    model: str | None,
    batch: int,
    context: int | None,
    device: str | None,
    trust_remote_code: bool,
    variant: str = "eager",
    tokens: int = DEFAULT_TOKENS,
    dtype: str | None = None,
    prompt: str | None = None,
    prompt_ids: str | None = None,
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
) -> "WorkerConfig":
    """The options as one structure.

    Raises:
        InputError: two options that contradict each other, or ids that are no numbers.
    """
    from decodescope.analyzer.protocol import WorkerConfig

    ids = None if prompt_ids is None else _parse_ids(prompt_ids)
    if prompt is not None and ids is not None:
        raise InputError("--prompt and --prompt-ids: give one of them")
    if context is not None and (prompt is not None or ids is not None):
        raise InputError("--context: the prompt's length is the context; give one of them")
    return WorkerConfig(
        model=model,
        variant=variant,
        batch=batch,
        context=context,
        tokens=tokens,
        dtype=dtype,
        device=device,
        prompt=prompt,
        prompt_ids=ids,
        trust_remote_code=trust_remote_code,
        sampling=_sampling(temperature, top_k, top_p, seed),
    )


def _sampling(
    temperature: float | None, top_k: int | None, top_p: float | None, seed: int | None
) -> "SamplingSettings | None":
    from decodescope.analyzer.schema.report import SamplingSettings

    if temperature:
        return SamplingSettings(temperature, top_k, top_p, seed or 0)
    given = (("--top-k", top_k), ("--top-p", top_p), ("--seed", seed))
    if named := ", ".join(name for name, value in given if value is not None):
        raise InputError(f"{named}: without a --temperature above 0, decoding is greedy; add one")
    return None


def _parse_ids(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise InputError(
            f"--prompt-ids {text}: must be whole numbers with commas between, such as 1,2,3"
        ) from None
