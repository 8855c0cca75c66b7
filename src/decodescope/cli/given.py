"""The options that say what a trace itself does not: captures, the model, the peak, rules."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from decodescope.cli.options import FILE, file_option, number_option, together

if TYPE_CHECKING:
    from decodescope.analyzer.reports.user_facts import Given

_AMOUNT = click.IntRange(min=1)
given_options = together(
    click.option(
        "--capture",
        "captures",
        metavar="FILE",
        type=FILE,
        multiple=True,
        help="A profile of a graph's capture, which names the ops of its replays; several times "
        "for several files, of which those that fit are used.",
    ),
    click.option(
        "--model",
        metavar="NAME|FILE|auto|none",
        help="The model of the traced steps, as gpt-oss-20b, a config.json or its folder: its "
        "bytes and FLOPs give each role a limit. auto guesses it, none does not. [default: auto]",
    ),
    click.option(
        "--weights",
        metavar="FORMAT",
        help="The format of its weights, as fp8, int4, or bf16,experts=mxfp4,kv=fp8. "
        "[default: that of the model's config]",
    ),
    number_option(
        "--batch", type=_AMOUNT, help="Requests of a decode step, where the trace does not say."
    ),
    number_option(
        "--context",
        type=_AMOUNT,
        help="KV positions of each request, the new token included, where the trace does not say.",
    ),
    number_option(
        "--tensor-parallel",
        type=_AMOUNT,
        help="Devices that each matrix is divided over. [default: 1]",
    ),
    click.option(
        "--peak",
        metavar="RATE",
        help="The bandwidth of the device, as 4.8TB/s, or also its arithmetic, as "
        "5.3TB/s,1307TFLOP/s. [default: the datasheet's, by device name]",
    ),
    file_option("--roles", help="Rules for the names of kernels, tried before the bundled ones."),
)


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options of `given_options` as they were given; nothing is read yet."""

    captures: tuple[Path, ...] = ()
    model: str | None = None
    weights: str | None = None
    batch: int | None = None
    context: int | None = None
    tensor_parallel: int | None = None
    peak: str | None = None
    roles: Path | None = None

    @property
    def files(self) -> tuple[Path, ...]:
        return self.captures if self.roles is None else (*self.captures, self.roles)

    def __bool__(self) -> bool:
        return self != GivenOptions()

    def read(self) -> "Given":
        """The facts that the options give.

        Raises:
            TraceError: a capture is no trace.
            InputError: a capture has no captured launches, or another option says what cannot be.
        """
        from decodescope.analyzer.reports.user_facts import NOTHING, Given

        if not self:
            return NOTHING
        from decodescope.analyzer import load
        from decodescope.analyzer.attribution.capture_paths import capture_reference
        from decodescope.analyzer.names.rules import rules_with
        from decodescope.analyzer.reports.user_facts import given_model
        from decodescope.analyzer.roofline.peaks import parse_peak

        sizes = (self.batch, self.context, self.tensor_parallel)
        named = given_model(Given(), self.model, self.weights, *sizes)
        captures = tuple(load(path) for path in dict.fromkeys(self.captures))
        capture_reference(captures)
        return replace(
            named,
            captures=captures,
            peak=None if self.peak is None else parse_peak(self.peak),
            rules=None if self.roles is None else rules_with(self.roles),
        )
