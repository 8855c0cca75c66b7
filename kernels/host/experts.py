"""A mixture of experts as the kernels read it."""

from dataclasses import dataclass

import torch

from decodescope.kernels.host.activation import AnyActivation
from decodescope.kernels.host.weights import WeightMatrix


@dataclass(frozen=True, slots=True)
class Experts:
    """An MLP for each expert, of which a token uses the `chosen` whose router logits are largest.

    `router` has a row for each expert. `gate_up` holds the matrices of all experts one after
    another, in each the gate rows first, or if `interleaved` a gate and its up row in turn, and
    `down` likewise. `activation` joins gate and up. A token's weights are `factor` times the
    softmax of all its router logits, divided by the sum of the chosen ones if `normalized`, which
    is the softmax of the chosen ones. With a `correction` float32 [experts] they are those of the
    sigmoids in place of the softmax, and the experts are chosen whose sigmoid + correction is
    largest.

    Raises:
        ValueError: matrices whose sizes contradict each other; more chosen than there are; sigmoids
            that are not normalized.
    """

    router: WeightMatrix
    gate_up: WeightMatrix
    down: WeightMatrix
    chosen: int
    normalized: bool
    interleaved: bool = False
    activation: AnyActivation = "silu"
    correction: torch.Tensor | None = None
    factor: float = 1.0

    def __post_init__(self) -> None:
        hidden, intermediate = self.router.columns, self.down.columns
        if (self.gate_up.rows, self.gate_up.columns) != (2 * intermediate * self.count, hidden):
            raise ValueError(
                f"gate_up [{self.gate_up.rows}, {self.gate_up.columns}]: must be {self.count} "
                f"experts of [{2 * intermediate}, {hidden}]"
            )
        if self.down.rows != self.count * hidden:
            raise ValueError(f"down of {self.down.rows} rows: must be {self.count} of {hidden}")
        if not 1 <= self.chosen <= self.count:
            raise ValueError(f"{self.chosen} experts of {self.count}: must be 1 to {self.count}")
        if self.correction is not None and not self.normalized:
            raise ValueError("a correction of sigmoids: must be normalized")

    @property
    def count(self) -> int:
        return self.router.rows

    @property
    def intermediate(self) -> int:
        return self.down.columns

    @property
    def width(self) -> int:
        """Elements between the two halves of the MLP of a token."""
        return self.chosen * self.intermediate

    @property
    def matrices(self) -> tuple[WeightMatrix, ...]:
        return self.gate_up, self.down

    def read(self, matrix: WeightMatrix, batch: int) -> tuple[torch.Tensor, ...]:
        """As much of `matrix`, which holds all experts, as `batch` tokens read at most: their
        experts are known on the device alone."""
        rows = matrix.rows // self.count * min(self.count, batch * self.chosen)
        return tuple(tensor[:rows] for tensor in matrix.pointers if tensor is not None)
