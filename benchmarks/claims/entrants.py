"""Makes entrants of launches of ours that belong together, and of sequences of PyTorch operators.

What a PyTorch sequence launches and moves is counted while it runs, not written down by hand.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from benchmarks.claims.racing import Entrant, Tensors
from decodescope.kernels.device.overlap import can_overlap
from decodescope.kernels.host.operation import KernelOperation, Launch

# Half the distance of neighbouring numbers of float16, as a share of the value.
HALF_ROUNDING = 2.0**-11


@dataclass(frozen=True, slots=True)
class Cost:
    """What a sequence of PyTorch operators launches, and the bytes that these launches read and
    write: views launch nothing, and an operand that is broadcast counts once."""

    launches: int
    bytes_moved: int


def cost_of(call: Callable[[], object]) -> Cost:
    """Run `call` once and count. An operator that is several kernels counts once."""
    with _Counting() as counting:
        call()
    return Cost(counting.launches, counting.bytes_moved)


def pytorch(
    name: str,
    what: str,
    calls: Sequence[Callable[[], Tensors]],
    reference: Tensors,
    roundings: int,
    arranged: Callable[[Tensors], Tensors] = lambda results: results,
) -> Entrant:
    """A PyTorch sequence, one for each copy of the operands, whose results are new tensors.

    `roundings`: how often it rounds to float16 on the way to a result; each may add half the
    distance of two neighbouring numbers. `arranged` puts results in the order of the reference's
    elements, outside of what is timed.
    """
    cost = cost_of(calls[0])
    return Entrant(
        name,
        what,
        keeping_results(calls),
        result=lambda: arranged(calls[0]()),
        reference=lambda: reference,
        tolerance=roundings * HALF_ROUNDING,
        traffic_bytes=cost.bytes_moved,
        launches=cost.launches,
    )


def keeping_results(calls: Sequence[Callable[[], Tensors]]) -> list[Callable[[], None]]:
    """The calls, whose new tensors stay until the turn of the same copy comes again.

    Memory that was just freed is in the L2 cache: a result there would replace the one before it,
    which never reaches memory. Ours write to memory of their own.
    """
    kept: list[Tensors] = [()] * len(calls)

    def keeping(index: int) -> Callable[[], None]:
        def call() -> None:
            kept[index] = calls[index]()

        return call

    return [keeping(index) for index in range(len(calls))]


def chained(
    chains: Sequence[Sequence[KernelOperation]],
    what: str,
    reference: Tensors,
    tolerance: float,
    position: int,
) -> Entrant:
    """Operations of ours in a row, one chain for each copy of the operands; the result is what the
    last of them writes. Within a chain a launch may overlap with the previous one (PDL), as in a
    decode step; the first never does. An output without elements has nothing to check."""
    first = chains[0]
    outputs = tuple(one for one in first[-1].outputs(position) if one.numel())

    def result() -> Tensors:
        for operation in first:
            for out in operation.outputs(position):
                out.fill_(float("nan"))
        _launched(first)
        return outputs

    return Entrant(
        " + ".join(one.kernel for one in first),
        what,
        [_replay(_launched(chain)) for chain in chains],
        result,
        lambda: reference,
        tolerance,
        ours=True,
        traffic_bytes=sum(one.bytes_moved(position) for one in first),
        launches=len(first),
    )


def _launched(chain: Sequence[KernelOperation]) -> list[Launch]:
    overlaps = can_overlap(chain[0].x.device)
    return [one.launch(overlaps and index > 0) for index, one in enumerate(chain)]


def _replay(launches: Sequence[Launch]) -> Callable[[], None]:
    if len(launches) == 1:
        return launches[0]

    def replay() -> None:
        for launch in launches:
            launch()

    return replay


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.launches = 0
        self.bytes_moved = 0

    def __torch_dispatch__(
        self,
        operator: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        results = operator(*args, **(kwargs or {}))
        read, written = _tensors((args, kwargs)), _tensors(results)
        storages = {one.untyped_storage().data_ptr() for one in read}
        viewed = all(one.untyped_storage().data_ptr() in storages for one in written)
        if operator._schema.is_mutable or not viewed:
            self.launches += 1
            self.bytes_moved += sum(one.nbytes for one in (*read, *written))
        return results


def _tensors(values: object) -> list[torch.Tensor]:
    return [one for one in tree_leaves(values) if isinstance(one, torch.Tensor)]
