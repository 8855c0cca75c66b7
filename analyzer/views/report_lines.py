"""What a report says in sentences: its layers, its cost, and how many ops have a path."""

from rich.text import Text

from decodescope.analyzer.schema.report import Attribution, Report
from decodescope.analyzer.schema.step_cost import StepCost
from decodescope.analyzer.schema.structure_report import StructureReport
from decodescope.analyzer.text.formatting import bytes_size, count, percent
from decodescope.analyzer.text.plain import plain_line
from decodescope.analyzer.vocabulary.words import (
    layers_words,
    ops_word,
)

_BAR_CELLS = 24


def layers_line(structure: StructureReport) -> Text:
    """The layers in a sentence."""
    return Text(layers_words(structure))


def cost_line(cost: StepCost) -> Text:
    """What the step must read and compute, in a sentence."""
    sizes = [f"{count(cost.batch)} requests" if cost.batch != 1 else "1 request"]
    sizes += [f"{count(cost.kv_tokens)} KV positions"] if cost.kv_tokens is not None else []
    formats = f" ({plain_line(cost.weights)})" if cost.weights else ""
    devices = f", 1 of {cost.tensor_parallel} devices" if cost.tensor_parallel > 1 else ""
    peak = cost.peak_bytes_per_s
    at = f", {bytes_size(peak)}/s at most" if peak else ", at an unknown bandwidth"
    return Text(
        f"{plain_line(cost.model)}{formats}: {', '.join(sizes)}{devices}; a step reads "
        f"{bytes_size(cost.bytes_per_step)}{at}",
        style="dim",
    )


def attribution_line(report: Report, attribution: Attribution) -> Text:
    """How many ops have a path, by confidence."""
    ops = attribution.exact + attribution.partial + attribution.none
    parts = [
        f"{percent(number / ops)} % {word}"
        for number, word in (
            (attribution.exact, "exactly"),
            (attribution.partial, "partially"),
            (attribution.none, "not"),
        )
        if number
    ]
    said = f"of {count(ops)} {ops_word(report)}: {', '.join(parts)} attributed"
    if attribution.inferred:
        said += f"; {percent(attribution.inferred / ops)} % have a path inferred from kernel names"
    return Text(said, style="dim")
