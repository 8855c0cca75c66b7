"""What a step consists of, for a terminal: its layers in words, its time by role."""

from rich.table import Table
from rich.text import Text

from decodescope.analyzer.formatting import bytes_size, count, duration, percent
from decodescope.analyzer.plain import plain_line
from decodescope.analyzer.schema.step_cost import StepCost
from decodescope.analyzer.schema.structure_report import RoleReport, StructureReport
from decodescope.analyzer.views.table_parts import MEDIUM_WIDTH, Column, columns_table

_SOURCES = {
    "ranges": "as the ranges name them",
    "capture": "as the graph's capture names them",
    "annotations": "as the graph's annotations name them",
    "repetition": "found by repetition of kernel names",
}


def layers_line(structure: StructureReport) -> Text:
    """The layers in a sentence."""
    motifs = zip(structure.motif_layers, structure.layer_ops, strict=True)
    of_each = ", ".join(f"{count(layers)} of {count(ops)} ops" for layers, ops in motifs)
    layers = "layer" if structure.layers == 1 else "layers"
    certainty = "" if structure.confidence == "exact" else ", some unlike the others"
    return Text(
        f"{count(structure.layers)} {layers} ({of_each}), {_ops(structure.prologue_ops)} "
        f"before and {_ops(structure.epilogue_ops)} after them, "
        f"{_SOURCES[structure.source]}{certainty}"
    )


def _ops(number: int) -> str:
    return "1 op" if number == 1 else f"{count(number)} ops"


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


def roles_table(roles: tuple[RoleReport, ...], width: int) -> Table:
    """One row for each role; the columns of bytes only where they are known."""
    known = any(row.bytes is not None for row in roles)
    columns: list[Column[RoleReport]] = [
        Column("role", lambda row: row.role, text=True),
        Column("ops", lambda row: count(row.ops_per_step)),
        Column("time a step", lambda row: duration(row.ns_per_step)),
        Column("share %", lambda row: percent(row.share)),
        Column("GB/s", _rate, known),
        Column("limit", _limit, known),
        Column("of limit %", _of_limit, known),
        Column("by", lambda row: _CERTAINTY[row.confidence], width >= MEDIUM_WIDTH, text=True),
    ]
    return columns_table(columns, roles)


_CERTAINTY = {"exact": "name", "partial": "place", "none": "unknown"}


def _rate(row: RoleReport) -> str:
    if row.bytes is None or not row.ns_per_step:
        return ""
    return f"{row.bytes / row.ns_per_step:,.0f}"


def _limit(row: RoleReport) -> str:
    return "" if row.limit_ns is None else duration(row.limit_ns)


def _of_limit(row: RoleReport) -> str:
    if row.limit_ns is None or not row.ns_per_step:
        return ""
    return percent(row.limit_ns / row.ns_per_step)
