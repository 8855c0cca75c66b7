"""Servers that run already, as a table: what they say of themselves, and the whole group."""

from functools import partial

from decodescope.analyzer.schema.ranks_report import ServerFigures
from decodescope.analyzer.tables import kinds
from decodescope.analyzer.tables.columns import Column, Table
from decodescope.analyzer.text.formatting import milliseconds

_SECONDS = partial(Column, kinds.known(lambda s: milliseconds(1e9 * s)), symbol="ms")


def servers_table(group: ServerFigures) -> Table[ServerFigures]:
    """The servers of a group, and the group itself as the last row."""
    return Table(
        "servers",
        SERVER_COLUMNS,
        (*group.servers, group),
        tone=lambda row: "strong" if row.servers else "bad" if row.problem else "plain",
    )


SERVER_COLUMNS: tuple[Column[ServerFigures], ...] = (
    kinds.NAME(
        "name", "server", text=lambda row: ": ".join(filter(None, (row.name, _why(row)))), least=16
    ),
    kinds.RATE("generated_per_s", "tok/s"),
    kinds.NUMBER("running", "running", priority=1),
    kinds.NUMBER("waiting", "waiting", priority=2),
    kinds.PERCENT("kv_fill", "KV", priority=3),
    _SECONDS("inter_token_p50_s", "p50", priority=4),
    _SECONDS("inter_token_p99_s", "p99", priority=5),
    kinds.RATE("prompt_per_s", "prefill", priority=6),
)


def _why(row: ServerFigures) -> str:
    """The problem of a server, without its URL, which the name says."""
    if row.problem:
        return row.problem.partition(": ")[2] or row.problem
    return "restarted" if row.restarted else ""
