"""The tools by name: what each is for, its arguments and its function."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from decodescope.analyzer.tables.column_help import column_terms
from decodescope.analyzer.vocabulary.terms import find_term, read_terms
from decodescope.cli.mcp import comparing_tools, running_tools, timeline, trace_tools
from decodescope.cli.mcp.answers import lines_page
from decodescope.cli.mcp.tool_host import ToolHost


class ExplainArguments(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    term: trace_tools.ShortText | None = None
    offset: trace_tools.Offset = 0


def explain_tool(host: ToolHost, arguments: ExplainArguments) -> str:
    """The definition of a term, or the names of all."""
    if arguments.term is None:
        names = [term.name for term in read_terms()]
        return lines_page(
            "Terms:", names[arguments.offset :], arguments.offset, len(names), "terms"
        )
    term = find_term(arguments.term, column_terms())
    lines = term.definition.splitlines()
    shown = lines[arguments.offset :]
    return lines_page(term.name, shown, arguments.offset, len(lines), "lines")


@dataclass(frozen=True, slots=True)
class ServedTool:
    """`call` gets the host and the decoded `arguments`, and returns the text of the answer, or an
    awaitable of it. `reads_only`: it neither writes nor decodes."""

    description: str
    arguments: type[msgspec.Struct]
    call: Callable[[ToolHost, Any], Any]
    reads_only: bool = True

    @property
    def is_async(self) -> bool:
        return inspect.iscoroutinefunction(self.call)

    @property
    def input_schema(self) -> dict[str, Any]:
        """The JSON schema of the arguments, an object without references."""
        name = self.arguments.__name__
        _, schemas = msgspec.json.schema_components([self.arguments])
        return {key: value for key, value in schemas[name].items() if key != "title"}


TOOLS = {
    "open": ServedTool(
        "Open a trace: what it holds and its main figures. Without a path, or with a folder's, "
        "list files. model, batch, context, weights, peak and captures say what the trace does "
        "not; later calls use them.",
        trace_tools.OpenArguments,
        trace_tools.open_tool,
    ),
    "answer": ServedTool(
        "Start here: why a decode step takes its time, in 30 lines. Step time, limit, bound, the "
        "parts that lose most with their kernels, and what to do next.",
        trace_tools.AnswerArguments,
        trace_tools.answer_tool,
    ),
    "kernels": ServedTool(
        "The kernels of the main steps, the longest first; with index, one kernel in full.",
        trace_tools.KernelsArguments,
        trace_tools.kernels_tool,
    ),
    "gaps": ServedTool(
        "Idle time of the GPU by class, and its gaps by cause; by=length lists the longest ones, "
        "by=device the idle time of every GPU.",
        trace_tools.GapsArguments,
        trace_tools.gaps_tool,
    ),
    "layers": ServedTool(
        "Time of each layer of the median step; with under, of the ranges below a path.",
        trace_tools.LayersArguments,
        trace_tools.layers_tool,
    ),
    "timeline": ServedTool(
        "Ops and idle gaps of a device in order: of a step, or of span_ns from at_ns.",
        timeline.TimelineArguments,
        timeline.timeline_tool,
    ),
    "diff": ServedTool(
        "What changed from the traces base to the traces other: ratio of step times with its 95 % "
        "interval, and the change of each part. Several traces a side show the noise.",
        comparing_tools.DiffArguments,
        comparing_tools.diff_tool,
    ),
    "gate": ServedTool(
        "Is a step slower than in a saved baseline, by more than is allowed ('2', 'attention=5', "
        "in per cent) and beyond noise? save=true keeps the paths as that baseline instead.",
        comparing_tools.GateArguments,
        comparing_tools.gate_tool,
        reads_only=False,
    ),
    "run": ServedTool(
        "Measure and profile a decode step of decodescope's own (needs --allow-run).",
        running_tools.RunArguments,
        running_tools.run_tool,
        reads_only=False,
    ),
    "compare": ServedTool(
        "Measure variants in turn: ratio of tokens/s with its interval, and accuracy (needs "
        "--allow-run).",
        running_tools.CompareArguments,
        running_tools.compare_tool,
        reads_only=False,
    ),
    "explain": ServedTool(
        "The definition of a term or key of the answers; without term, the list of terms.",
        ExplainArguments,
        explain_tool,
    ),
}
