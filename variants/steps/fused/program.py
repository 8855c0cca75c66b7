"""The operations of one step as they run: launched, replayed one by one, or as one CUDA graph."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial

import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.operation import Operation
from decodescope.variants.steps.annotations import LayerRanges

Path = tuple[str, ...]


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
    """

    def __init__(
        self, operations: Sequence[PlacedOperation], ranges: LayerRanges, pdl: bool
    ) -> None:
        self._operations = operations
        self._ranges = ranges
        self._pdl = pdl
        self._replays: list[tuple[Path, Callable[[], object]]] = []

    def run(self) -> None:
        """Run every operation once. The host waits for nothing."""
        if not self._replays:
            self._launch()
        elif self._ranges.enabled:
            self._call_within_ranges(self._replays)
        else:
            for _, replay in self._replays:
                replay()

    def _launch(self) -> None:
        replays: list[tuple[Path, Callable[[], object]]] = []
        replayable = True

        def launch(index: int, placed: PlacedOperation) -> None:
            nonlocal replayable
            launches = placed.operation.run(self._pdl and index > 0)
            replays.extend((placed.path, launch) for launch in launches)
            replayable = replayable and bool(launches)

        self._call_within_ranges(
            (placed.path, partial(launch, index, placed))
            for index, placed in enumerate(self._operations)
        )
        if replayable:
            self._replays = replays

    def _call_within_ranges(self, calls: Iterable[tuple[Path, Callable[[], object]]]) -> None:
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
    it only through memory that they share. `variant` is named in errors.
    """

    def __init__(
        self, operations: Sequence[PlacedOperation], ranges: LayerRanges, pdl: bool, variant: str
    ) -> None:
        super().__init__(operations, ranges, pdl)
        self._variant = variant
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self) -> None:
        """Run every operation once.

        Raises:
            MissingRequirement: the step cannot be captured here.
        """
        if self._graph is not None:
            with self._ranges.open("model"):
                self._graph.replay()
            return
        # Loads every kernel, which must not happen during a capture.
        super().run()
        self._graph = self._captured()

    def _captured(self) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            # Other threads (a profiler's) may use the device during the capture.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                super().run()
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # Ending a broken capture raises as well, and hides what broke it.
            reason = str(error.__context__ or error).strip().partition("\n")[0]
            raise MissingRequirement(
                f"variant {self._variant}: its step cannot be captured as a CUDA graph "
                f"({reason}); choose the variant without +graph"
            ) from error
        return graph
