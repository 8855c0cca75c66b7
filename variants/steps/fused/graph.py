"""A fused step as CUDA graphs: one launch call a token, at any position the cache holds."""

import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.steps.fused.launches import launch_step
from decodescope.variants.steps.fused.plan import StepPlan


class StepGraphs:
    """The graphs of a plan's step, one for each set of its launches that is asked for.

    A graph has a memory pool of its own and remembers the addresses of the plan's buffers: steps of
    other plans disturb it only through memory that they share.
    """

    def __init__(self, plan: StepPlan) -> None:
        self._plan = plan
        self._graphs: dict[bool, torch.cuda.CUDAGraph] = {}

    def run(self, keep_logits: bool) -> None:
        """Do what `launch_step` does, from a graph; the first time launch by launch, then capture.

        Raises:
            MissingRequirement: the step cannot be captured here.
        """
        graph = self._graphs.get(keep_logits)
        if graph is not None:
            with self._plan.ranges.open("model"):
                graph.replay()
            return
        # Loads every kernel, which must not happen during a capture.
        launch_step(self._plan, keep_logits)
        self._graphs[keep_logits] = self._captured(keep_logits)

    def _captured(self, keep_logits: bool) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        try:
            # What other threads do on the device meanwhile (a profiler's) is none of its business.
            with torch.cuda.graph(graph, capture_error_mode="thread_local"):
                launch_step(self._plan, keep_logits)
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            # Ending a broken capture raises as well, and hides what broke it.
            reason = str(error.__context__ or error).strip().partition("\n")[0]
            raise MissingRequirement(
                f"variant {self._plan.spec}: its step cannot be captured as a CUDA graph "
                f"({reason}); choose the variant without +graph"
            ) from error
        return graph
