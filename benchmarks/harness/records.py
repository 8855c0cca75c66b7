"""The one writer of records, the one environment that they name, and where they are."""

import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from decodescope.analyzer.io.files import write_json
from decodescope.analyzer.io.output_paths import is_stdout
from decodescope.cli.output import print_result, say_written
from decodescope.variants.machine.environment import environment

if TYPE_CHECKING:
    from rich.console import RenderableType

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
Result = TypeVar("Result", bound=msgspec.Struct)


def write_record(
    path: Path, figures: Mapping[str, Any] | msgspec.Struct, command: str = ""
) -> None:
    """Write `figures` as JSON between the command that measures them again (by default this
    process's) and the environment (by default this machine's)."""
    if isinstance(figures, msgspec.Struct):
        figures = msgspec.structs.asdict(figures)
    record = {"command": command or _this_command(), **figures}
    if "environment" not in record:
        record["environment"] = environment()
    write_json(path, record)


def _this_command() -> str:
    """The command of this process, without its output file."""
    words = ["python", "-m", "benchmarks", *sys.argv[1:]]
    for option in {"-o", "--output"} & set(words):
        place = words.index(option)
        del words[place : place + 2]
    return shlex.join(words)


def report_result(
    path: Path | None,
    result: Result,
    table: Callable[[Result], "RenderableType"],
    as_json: bool,
) -> None:
    """Write the record to the file given by `-o`, if any, and print the result. If that file is
    standard output, nothing else is printed there."""
    if path is not None:
        write_record(path, result)
        say_written(path, "json")
    if not is_stdout(path):
        print_result(result, table, as_json)
