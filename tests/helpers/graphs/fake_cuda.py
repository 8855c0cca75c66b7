"""CUDA graphs without CUDA: captures, numbered nodes, and what torch notes of them."""

import importlib.util
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType, ModuleType, SimpleNamespace
from typing import Any

import torch

from decodescope.kernels.host.operation import Launch, Operation

LOGGER = logging.getLogger("torch.cuda._graph_annotations")


class FakeCuda:
    """Captures one stream. A node's number is that of its graph << 32 | that within the graph; the
    executable graph has a number of its own, which is free again when the graph is closed."""

    def __init__(self) -> None:
        self.nodes: list[int] = []
        self.capturing: int | None = None
        self.annotating = self.refuses_annotations = False
        self.replayed: list[int] = []
        # torch's module of 2.15 and later, which `torch.cuda.graph` calls.
        self.noting: Any = None
        self._used: set[int] = set()

    @contextmanager
    def capture(
        self, graph: Any, capture_error_mode: str, enable_annotations: bool = False
    ) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        if enable_annotations and self.refuses_annotations:
            raise RuntimeError("no annotations today")
        self.annotating = enable_annotations
        self.capturing, self.nodes = self._number(), []
        noting = self.noting if enable_annotations else None
        if noting is not None:
            graph._recorded_exec_ids, graph._capture_graph_id = set(), None
            noting._set_annotations_enabled(True)
            noting.maybe_stamp_capture_root(graph)
        try:
            yield
            if noting is not None:
                noting.resolve_pending_annotations()
            own, graph.number = len(self.nodes), self._number()
            of_graph = [graph.number << 32 | k + 1 for k in range(own)]
            graph.replay = lambda: self.replayed.extend(of_graph)
            graph.raw_cuda_graph_exec = lambda: graph.number
            if noting is not None:
                noting.remap_to_exec_graph(graph)
        finally:
            if noting is not None:
                noting._set_annotations_enabled(False)
            self._used.remove(self.capturing)
            self.capturing = None

    def close(self, graph: Any) -> None:
        """The end of a graph."""
        self._used.remove(graph.number)

    def launch(self) -> None:
        if self.capturing is not None:
            self.nodes.append(self.capturing << 32 | len(self.nodes) + 1)

    def _number(self) -> int:
        free = next(one for one in range(1, 99) if one not in self._used)
        self._used.add(free)
        return free


class Kernels(Operation):
    """An operation of some kernels; `fails` is raised in a capture."""

    def __init__(self, cuda: FakeCuda, count: int = 1, fails: Exception | None = None) -> None:
        self._cuda = cuda
        self._count = count
        self._fails = fails

    def run(self, pdl: bool) -> tuple[Launch, ...]:
        for _ in range(self._count):
            self._launch()
        return (Launch(self._launch, ()),) * self._count

    def _launch(self) -> None:
        if self._cuda.capturing is not None and self._fails is not None:
            raise self._fails
        self._cuda.launch()


class FakeAnnotations:
    """Does what torch's module does; raises at the point that `fails_at` names, and logs then."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.fails_at = ""
        self.notes: dict[int, list[Any]] = {}
        self._cuda = cuda
        self.pending: list[tuple[str, list[int]]] = []
        self._captured = 0

    def enable_annotations(self) -> None:
        self._reach("enable")

    @contextmanager
    def mark_kernels(self, annotation: str) -> Iterator[None]:
        self._reach("enter")
        before = len(self._cuda.nodes)
        yield
        self._reach("exit")
        self.pending.append((annotation, self._cuda.nodes[before:]))

    def resolve_pending_annotations(self) -> None:
        if self.pending:
            self._reach("resolve")
        for annotation, nodes in self.pending:
            for node in nodes:
                self._captured = node >> 32
                self.notes.setdefault(node, []).append({"str": annotation})
        self.pending.clear()

    def remap_to_exec_graph(self, torch_cuda_graph: Any) -> None:
        self._reach("remap")
        for node in [one for one in self.notes if one >> 32 == self._captured]:
            number = torch_cuda_graph.raw_cuda_graph_exec() << 32 | node & 0xFFFFFFFF
            self.notes.setdefault(number, []).extend(self.notes.pop(node))

    def get_kernel_annotations(self) -> dict[int, list[Any]]:
        self._reach("get")
        return self.notes

    def _is_tools_id_unavailable(self) -> bool:
        self._reach("ask")
        return False

    def _reach(self, point: str) -> None:
        if point == self.fails_at:
            LOGGER.error("failed at %s", point)
            raise RuntimeError(f"failed at {point}")


class LaterAnnotations:
    """Later versions of torch: captures that ask for notes have them, texts are names, and
    the notes are read-only."""

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        self._noted = FakeAnnotations(cuda)
        self.resolve_pending_annotations = self._noted.resolve_pending_annotations
        self.remap_to_exec_graph = self._noted.remap_to_exec_graph
        self._is_tools_id_unavailable = self._noted._is_tools_id_unavailable

    @contextmanager
    def mark_kernels(self, annotation: str, *, backward: bool = True) -> Iterator[None]:
        if self._cuda.annotating:
            with self._noted.mark_kernels(annotation):
                yield
        else:
            yield

    def get_kernel_annotations(self) -> Mapping[int, list[Any]]:
        notes = self._noted.notes
        return MappingProxyType({node: [{"name": one[-1]["str"]}] for node, one in notes.items()})

    def remove_kernel_annotations(self, exec_graph_ids: Iterable[int]) -> None:
        gone = set(exec_graph_ids)
        for node in [one for one in self._noted.notes if one >> 32 in gone]:
            del self._noted.notes[node]


def torchs_own(cuda: FakeCuda) -> ModuleType | None:
    """A copy of torch's module on `cuda`; None if this torch has none."""
    spec = importlib.util.find_spec("torch.cuda._graph_annotations")
    if spec is None or spec.loader is None:
        return None
    module: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module._HAS_CUDA_BINDINGS = True
    module._cuda_runtime = module._cuda_driver = _Runtime(cuda)
    module._check_cuda_bindings = lambda result: result[1] if len(result) == 2 else result[1:]
    module._check_cuda_bindings_driver = module._check_cuda_bindings
    module.torch = SimpleNamespace(
        cuda=SimpleNamespace(current_stream=lambda: SimpleNamespace(cuda_stream=0)),
        autograd=torch.autograd,
        _C=torch._C,
    )
    if hasattr(module, "maybe_stamp_capture_root"):
        cuda.noting = module
    return module  # type: ignore[no-any-return]


_DRIVERS_NODE_TYPES = (
    *("KERNEL", "MEMCPY", "MEMSET", "BATCH_MEM_OP", "EVENT_RECORD", "WAIT_EVENT", "HOST"),
    *("GRAPH", "CONDITIONAL"),
)


class _Runtime:
    """The functions of `cuda.bindings` that torch's module calls: a chain of kernels."""

    cudaError_t = SimpleNamespace(
        cudaSuccess=0, cudaErrorInvalidValue=1, cudaErrorCallRequiresNewerDriver=36
    )
    cudaStreamCaptureStatus = SimpleNamespace(cudaStreamCaptureStatusActive=1)
    cudaGraphNodeType = SimpleNamespace(cudaGraphNodeTypeKernel=0, cudaGraphNodeTypeMemcpy=1)
    CUgraphNodeType = SimpleNamespace(
        **{f"CU_GRAPH_NODE_TYPE_{name}": at for at, name in enumerate(_DRIVERS_NODE_TYPES)}
    )

    def __init__(self, cuda: FakeCuda) -> None:
        self._cuda = cuda
        handle: Callable[..., int] = lambda init_value: int(init_value)  # noqa: E731
        self.cudaStream_t = self.cudaGraphExec_t = handle

    def cudaStreamGetCaptureInfo(self, stream: int) -> tuple[Any, ...]:
        nodes = self._cuda.nodes
        active = int(self._cuda.capturing is not None)
        return 0, active, 1, self._cuda.capturing, nodes[-1:], None, len(nodes[-1:])

    def cudaGraphGetId(self, graph: int) -> tuple[int, int]:
        return 0, graph

    def cudaGraphGetRootNodes(self, graph: int, pNumRootNodes: int = 0) -> tuple[Any, ...]:
        return 0, self._cuda.nodes[:pNumRootNodes], len(self._cuda.nodes[:1])

    def cudaGraphNodeGetDependentNodes(
        self, node: int, pNumDependentNodes: int = 0
    ) -> tuple[Any, ...]:
        at = self._cuda.nodes.index(node) + 1
        behind = self._cuda.nodes[at : at + 1]
        return 0, behind[:pNumDependentNodes], None, len(behind)

    def cudaGraphNodeGetType(self, node: int) -> tuple[int, int]:
        return 0, 0

    cuGraphNodeGetType = cudaGraphNodeGetType

    def cudaGraphNodeGetToolsId(self, node: int) -> tuple[int, int]:
        return 0, node

    def cudaGraphExecGetId(self, graph: int) -> tuple[int, int]:
        return 0, graph


def patch_torch(monkeypatch: Any, cuda: FakeCuda) -> None:
    """Let torch capture graphs with `cuda`."""
    monkeypatch.setattr(torch.cuda, "CUDAGraph", SimpleNamespace)
    monkeypatch.setattr(torch.cuda, "graph", cuda.capture)
