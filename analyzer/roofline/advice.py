"""Advice by the bound of a step, and by why the GPU was idle."""

from collections.abc import Mapping

from decodescope.analyzer.schema.report import Bound

NAME_MODEL = "name the model (`--model NAME` or `--model config.json`), which says the bytes"
GIVE_PEAK = "give the bandwidth of the device (`--peak 4.8TB/s`)"
RECORD = "record the step with `decodescope run --trace FILE`, which notes "
LATE_ADVICE = {
    "python": "replay the step as one CUDA graph (variants compiled, fused+graph)",
    "sync": "remove the synchronisations from the step (.item(), .cpu(), printing a tensor)",
    "allocation": "allocate before the step: a static KV cache, tensors that are used again",
    "memcpy_api": "copy from pinned memory without waiting, or keep the data on the GPU",
    "other_api": "move other CUDA calls (module loads, queries) out of the step",
}
GRAPH_ADVICE = (
    "the step is a graph: launch the next replay before this one ends, without reading its token"
)
BOUND_ADVICE: Mapping[Bound, str] = {
    "compute": "lower precision, a smaller batch or fewer FLOPs make it faster",
    "communication": "compare the ranks (`decodescope analyze RANK0 RANK1 …`): a collective also "
    "waits for the slowest one; then overlap it, or use fewer devices",
    "kernels": "start with the kernels that take most of the busy time "
    "(`decodescope analyze FILE --show kernels`)",
}
# In a word of a variant's name: elements of one byte.
NARROW = ("fp8", "int8", "w8a8")
SMALL_GAPS_ADVICE = (
    "let the next kernel start early (variant fused+graph: programmatic dependent launch), or fuse"
)
UNLINKED_ADVICE = "record the host's API calls too: they show why the GPU was idle"
_GAP_ADVICE = {
    "unlinked": UNLINKED_ADVICE,
    "graph_internal": SMALL_GAPS_ADVICE,
    "launch_call": LATE_ADVICE["python"],
    "launch_latency": LATE_ADVICE["python"],
    "kernel_floor": SMALL_GAPS_ADVICE,
    "dependency": "find what it waited for on the other stream, and start that earlier or on this "
    "stream",
}


def gap_advice(gap_class: str, label: str | None, call: str | None) -> str:
    """Advice about a gap of this class; `label` is the host's activity in a host_wait, `call` the
    launch call that ended the gap."""
    late = gap_class in ("launch_call", "launch_latency") or label == "python"
    if late and call is not None and "GraphLaunch" in call:
        return GRAPH_ADVICE
    return _GAP_ADVICE.get(gap_class) or LATE_ADVICE[label or "python"]
