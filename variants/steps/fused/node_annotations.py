"""Names the nodes of captured CUDA graphs through torch, so that traces of replays have paths.

torch (2.13 and later, with `cuda-bindings` and a driver of CUDA 13.1) notes which nodes a part of a
capture adds, under the numbers that profilers give them (`graph node id`). Its module is private
and may change, so an error of it costs the names, never the graph.

torch keeps the notes of all graphs in one dictionary for as long as the process runs, and the
number of a graph may come again once it is gone. So the notes of a capture are taken out of it, and
live as long as their graph.

Later versions have no `enable_annotations`: `torch.cuda.graph` is asked for notes instead. Their
notes are read-only, and removed by the numbers of graphs; a text is under `name`, not `str`.
"""

import importlib
import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from inspect import signature
from typing import Any, TypeVar

import torch

_MODULE = "torch.cuda._graph_annotations"
_ENABLE, _REMOVE = "enable_annotations", "remove_kernel_annotations"
_USED = (
    "mark_kernels",
    "resolve_pending_annotations",
    "remap_to_exec_graph",
    "get_kernel_annotations",
)
# A node's number is that of its graph, and behind it 32 bits within the graph.
_GRAPH_SHIFT = 32
Call = Callable[[], object]
Path = tuple[str, ...]
_Result = TypeVar("_Result")


def torch_annotations() -> Any:
    """torch's module if it can name the nodes of a capture here; else None, and nothing is said.

    Asks the driver, so it is for code that uses CUDA already. A torch without CUDA is not asked.
    """
    if torch.version.cuda is None:
        return None
    try:
        module: Any = importlib.import_module(_MODULE)
    except Exception:  # it is private: whatever it raises, there are no names
        return None
    return module if offered_by(module) else None


def offered_by(module: Any) -> bool:
    """Whether `module` has what is used of it and says that it can name nodes."""
    try:
        with _silenced():
            usable = not module._is_tools_id_unavailable()
    except Exception:
        return False
    asked_for = hasattr(module, _REMOVE) and _ENABLE in signature(torch.cuda.graph).parameters
    enabled = hasattr(module, _ENABLE) or asked_for
    return usable and enabled and all(hasattr(module, name) for name in _USED)


class NodeMarks:
    """Names the nodes of one capture by the paths of the calls that add them.

    `begin` before the capture, then inside it `around` its calls and `resolve` behind them, then
    `paths_of` the graph; `discard` if the capture fails. The first error of torch's module ends
    the naming: the calls go on, and no node has a name. Nor has one without `annotations`.
    """

    def __init__(self, annotations: Any) -> None:
        self._torch = annotations
        self._failed = annotations is None
        self._names: set[str] = set()
        # The last note of each node that others named, None before `begin`.
        self._before: dict[int, object] | None = None

    def begin(self) -> None:
        if hasattr(self._torch, _ENABLE):
            self._attempt(lambda: self._torch.enable_annotations())
        self._before = self._attempt(self._last_notes)
        # A capture that failed elsewhere may have left scopes, which would count as of this one.
        self._attempt(lambda: self._torch.resolve_pending_annotations())
        self._taken()

    @property
    def capture_options(self) -> dict[str, Any]:
        """The options that `torch.cuda.graph` needs for the capture."""
        asked = not self._failed and not hasattr(self._torch, _ENABLE)
        return {_ENABLE: True} if asked else {}

    def around(self, calls: Iterable[tuple[Path, Call]]) -> Iterator[tuple[Path, Call]]:
        """The calls, each of which names the nodes that it adds."""
        for path, call in calls:
            yield path, partial(self._named, "/".join(path), call)

    def resolve(self) -> None:
        """Call inside the capture, behind its last call."""
        self._attempt(lambda: self._torch.resolve_pending_annotations())

    def paths_of(self, graph: Any) -> dict[int, str]:
        """The path of each named node of `graph`, which the capture has made, by its number in
        profiles of replays; none after an error. torch's module keeps nothing of them."""
        self._attempt(lambda: self._torch.remap_to_exec_graph(graph))
        if self._failed:
            self.discard()
            return {}
        return self._taken()

    def discard(self) -> None:
        """Leave nothing of a failed capture in torch's module."""
        with suppress(Exception), _silenced():
            self._torch.resolve_pending_annotations()
        self._taken()

    def _named(self, name: str, call: Call) -> None:
        scope = self._attempt(partial(self._opened, name))
        # An error of the call drops the scope unclosed: the capture is lost, and the error is its.
        call()
        if scope is not None:
            self._attempt(partial(scope.__exit__, None, None, None))

    def _opened(self, name: str) -> AbstractContextManager[object]:
        self._names.add(name)
        scope: AbstractContextManager[object] = self._torch.mark_kernels(name)
        scope.__enter__()
        return scope

    def _last_notes(self) -> dict[int, object]:
        return {node: notes[-1] for node, notes in self._torch.get_kernel_annotations().items()}

    def _taken(self) -> dict[int, str]:
        """Take the notes that are not of others out of torch's dictionary."""
        names: dict[int, str] = {}
        if self._before is None:
            return names
        with suppress(Exception):
            notes = self._torch.get_kernel_annotations()
            # Earlier notes are of a graph that is gone, whose number this one has.
            last = self._last_notes()
            own = {node: note for node, note in last.items() if note is not self._before.get(node)}
            self._remove(notes, own)
            for node, note in own.items():
                name = note.get("str", note.get("name")) if isinstance(note, dict) else None
                if name in self._names:
                    names[node] = name
        return names

    def _remove(self, notes: dict[int, list[Any]], nodes: Iterable[int]) -> None:
        if hasattr(self._torch, _REMOVE):
            self._torch.remove_kernel_annotations({node >> _GRAPH_SHIFT for node in nodes})
            return
        for node in nodes:
            del notes[node]

    def _attempt(self, call: Callable[[], _Result]) -> _Result | None:
        """The result of `call`; None after an error, and from then on."""
        if self._failed:
            return None
        try:
            with _silenced():
                return call()
        except Exception:
            self._failed = True
            return None


@contextmanager
def _silenced() -> Iterator[None]:
    """Keep what torch's module logs from the terminal: the app draws there."""
    logger = logging.getLogger(_MODULE)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before
