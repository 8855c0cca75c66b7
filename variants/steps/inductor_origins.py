"""The range of the model from which each kernel call in torch.compile's generated code comes.

Inductor writes above every call the Dynamo nodes that it computes ("Topologically Sorted Source
Nodes", seen in torch 2.11 and 2.13), and Dynamo keeps with each node the modules it was called in.
A call that is not understood has no path; the path of a call that computes parts of several ranges
joins them with "+".
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile

from torch import fx

from decodescope.variants.steps.decode_step import CallSite

_CALL_FUNCTION = re.compile(r"^(?:    )?def call\(.*", re.MULTILINE)
_NODES = re.compile(r"^# Topologically Sorted Source Nodes: \[(.*?)\]")
_CALLS = (
    (re.compile(r"^(?:\w+ = )?(triton_\w+)\.run\("), ""),
    (re.compile(r"^(?:\w+ = )?extern_kernels\.(?:bias_)?(\w+)\("), "aten::"),
    (re.compile(r"^(?:\w+ = )?torch\.ops\.(\w+\.\w+)\.\w+\("), ""),
)
_PRODUCTS = frozenset(
    ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm", "scaled_dot_product_attention")
)
# Of torch 2.8, also `._modules['layers']`.
_INDEX = re.compile(r"(?:\._modules)?\[['\"]?(\w+)['\"]?\]")
_LAYER = re.compile(r"layer\.\d+")
_ROTARY = "rotary"


@dataclass(frozen=True, slots=True)
class SourceNode:
    """One operation of the traced model: the range it belongs to, as a path below the model ("" for
    the model itself), and whether it is a product that a library kernel computes by itself."""

    path: str
    is_product: bool


def source_nodes(graph: fx.Graph, paths: Mapping[str, str]) -> dict[str, SourceNode]:
    """Dynamo's nodes by name. `paths` gives the range path of the model's modules by their name.

    A node belongs to the innermost of its modules that has a path.
    """
    return {
        node.name: SourceNode(
            range_of([name for name, _ in node.meta.get("nn_module_stack", {}).values()], paths),
            getattr(node.target, "__name__", node.target) in _PRODUCTS,
        )
        for node in graph.nodes
    }


def range_of(modules: Sequence[str], paths: Mapping[str, str]) -> str:
    """The path of the innermost of the nested `modules` (as Dynamo writes them, outermost first:
    `L['self']._model.model.layers.0`) that is in `paths`; "" if none is."""
    for written in reversed(modules):
        steps = _INDEX.sub(r".\1", written).split(".")
        for first in range(len(steps)):
            path = paths.get(".".join(steps[first:]))
            if path is not None:
                return path
    return ""


def call_sites(code: str, nodes: Mapping[str, SourceNode]) -> tuple[CallSite, ...]:
    """The kernel calls of the wrapper `code` that inductor generated, in their order."""
    paths = _SitePaths(nodes)
    sites = []
    sources: tuple[str, ...] = ()
    for line in _call_body(code):
        if match := _NODES.match(line):
            sources = tuple(match[1].split(", ")) if match[1] else ()
        elif operator := _operator(line):
            is_triton = operator.startswith("triton_")
            sites.append(CallSite(operator, paths.of(sources, is_triton)))
            sources = ()
    return tuple(sites)


def _call_body(code: str) -> Iterator[str]:
    """The stripped lines of the function that calls the kernels, the last one of that name."""
    _, *bodies = _CALL_FUNCTION.split(code)
    lines = bodies[-1].splitlines() if bodies else []
    return map(str.strip, takewhile(lambda line: not line or line[0].isspace(), lines))


def _operator(line: str) -> str | None:
    for pattern, namespace in _CALLS:
        if match := pattern.match(line):
            return namespace + match[1].replace(".", "::")
    return None


class _SitePaths:
    """Paths of calls, queried in the order of the code.

    A fused kernel lists all that it computes, including what it computes again after an earlier
    kernel (the residual stream from the embedding on, the rotary angles). Only what is new in it
    shows where it belongs. The products that it lists are those whose results it reads.
    """

    def __init__(self, nodes: Mapping[str, SourceNode]) -> None:
        self._nodes = nodes
        self._computed: set[str] = set()
        self._known: dict[tuple[str, ...], str] = {}

    def of(self, sources: tuple[str, ...], fused: bool) -> str:
        if not sources or any(name not in self._nodes for name in sources):
            return ""
        if not fused:
            products = [name for name in sources if self._nodes[name].is_product]
            return self._joined((products or sources)[-1:])
        if sources not in self._known:
            own = [name for name in sources if not self._nodes[name].is_product] or sources
            new = [name for name in own if name not in self._computed] or own
            self._computed.update(own)
            self._known[sources] = self._joined(new)
        return self._known[sources]

    def _joined(self, names: Sequence[str]) -> str:
        """One path for the ranges of `names`; "" if they have no range or cannot be joined.

        Nodes directly in a layer (adding to the residual stream) or in the model belong to the
        parts that they are fused with. So do the rotary angles, which each layer computes again.
        """
        paths = list(dict.fromkeys(self._nodes[name].path for name in names))
        parts = [path for path in paths if path and not _LAYER.fullmatch(path)]
        parts = [path for path in parts if path != _ROTARY] or parts
        if not parts:
            layers = [path for path in paths if path]
            return layers[0] if len(layers) == 1 else ""
        leaves = [path.rpartition("/")[2] for path in parts]
        if len(set(leaves)) < len(leaves):
            return ""
        layer, slash, _ = parts[0].rpartition("/")
        return layer + slash + "+".join(leaves)
