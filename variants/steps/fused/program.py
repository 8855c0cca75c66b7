"""The operations of one step as they run: launched, replayed one by one, or as one CUDA graph."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.operation import Launch, Operation
from decodescope.variants.steps.annotations import LayerRanges
from decodescope.variants.steps.fused.node_annotations import (
    Call,
    NodeMarks,
    Path,
    torch_annotations,
)


@dataclass(frozen=True, slots=True)
class PlacedOperation:
    """An operation with the names of the ranges around it, from the outermost in."""

    path: Path
    operation: Operation


class StepProgram:
    """Runs operations in order, each within its ranges if `ranges` are on.

    The first run launches them through Triton. Later runs replay these launches, which costs the
    host far less, unless PyTorch's operators are among them. With `pdl` all launches but the first
    may overlap with their predecessor, so what was queued before a run completes before it starts.
    `node_paths` are the paths of the nodes of its CUDA graph, by their numbers in profiles.
    """

    def __init__(
        self, operations: Sequence[PlacedOperation], ranges: LayerRanges, pdl: bool
    ) -> None:
        self._operations = operations
        self._ranges = ranges
        self._pdl = pdl
        self._replays: list[tuple[Path, Call]] = []
        self.node_paths: Mapping[int, str] = {}

    def run(self) -> None:
        """Run every operation once. The host waits for nothing."""
        if self._replays and not self._ranges.enabled:
            for _, replay in self._replays:
                replay()
        else:
            self._call_within_ranges(self._calls())

    def _calls(self) -> Iterator[tuple[Path, Call]]:
        """The calls that run the operations: their replays, else their launches, which are kept."""
        if self._replays:
            yield from self._replays
            return
        launched: list[tuple[Path, tuple[Launch, ...]]] = []

        def launch(index: int, placed: PlacedOperation) -> None:
            launched.append((placed.path, placed.operation.run(self._pdl and index > 0)))

        for index, placed in enumerate(self._operations):
            yield placed.path, partial(launch, index, placed)
        if all(launches for _, launches in launched):
            self._replays = [(path, replay) for path, launches in launched for replay in launches]

    def _call_within_ranges(self, calls: Iterable[tuple[Path, Call]]) -> None:
        opened: list[AbstractContextManager[None]] = []
        inside: Path = ()
        try:
            for path, call in calls:
                self._move(inside, path, opened)
                inside = path
                call()
        finally:
            self._move(inside, (), opened)

    def _move(self, old: Path, new: Path, opened: list[AbstractContextManager[None]]) -> None:
        """Close the ranges of `old` that are not in `new`, and open those that are only in it."""
        shared = 0
        while shared < min(len(old), len(new)) and old[shared] == new[shared]:
            shared += 1
        while len(opened) > shared:
            opened.pop().__exit__(None, None, None)
        for name in new[shared:]:
            context = self._ranges.open(name)
            context.__enter__()
            opened.append(context)


class StepGraph(StepProgram):
    """A program as a CUDA graph: one launch call a token, at any position the cache holds.

    The first run launches the operations, then captures them; later runs replay the graph. It has
    a memory pool of its own and keeps the addresses of the operations' memory: other graphs affect
    it only through memory that they share. `variant` is named in errors. Where torch offers
    annotations of nodes (`annotations` says what it does), the capture names them.
    """

    def __init__(
        self,
        operations: Sequence[PlacedOperation],
        ranges: LayerRanges,
        pdl: bool,
        variant: str,
        annotations: Callable[[], Any] = torch_annotations,
    ) -> None:
        super().__init__(operations, ranges, pdl)
        self._variant = variant
        self._annotations = annotations
        outermost = {name for placed in operations for name in placed.path[:1]}
        # A replay is one call, so its range must be around every operation.
        self._around = outermost.pop() if len(outermost) == 1 else None
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self) -> None:
        """Run every operation once.

        Raises:
            MissingRequirement: the step cannot be captured here.
        """
        if self._graph is None:
            # Loads every kernel, which must not happen during a capture.
            super().run()
            self._graph = self._captured()
        elif self._around is None:
            self._graph.replay()
        else:
            with self._ranges.open(self._around):
                self._graph.replay()

    def _captured(self) -> torch.cuda.CUDAGraph:
        marks = NodeMarks(self._annotations())
        options = marks.capture_options
        try:
            return self._captured_with(marks, options)
        except MissingRequirement:
            if not options:
                raise
        # An error of the options costs the names, not the graph.
        return self._captured_with(NodeMarks(None), {})

    def _captured_with(self, marks: NodeMarks, options: dict[str, Any]) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        marks.begin()
        try:
            # Other threads (a profiler's) may use the device during the capture.
            with torch.cuda.graph(graph, capture_error_mode="thread_local", **options):
                self._call_within_ranges(marks.around(self._calls()))
                marks.resolve()
        except BaseException as error:
            marks.discard()
            if not isinstance(error, RuntimeError) or isinstance(error, torch.OutOfMemoryError):
                raise
            # Ending a broken capture raises as well, and hides what broke it.
            reason = str(error.__context__ or error).strip().partition("\n")[0]
            raise MissingRequirement(
                f"variant {self._variant}: its step cannot be captured as a CUDA graph "
                f"({reason}); choose the variant without +graph"
            ) from error
        self.node_paths = marks.paths_of(graph)
        return graph
