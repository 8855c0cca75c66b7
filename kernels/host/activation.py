"""How the two products of a gated MLP are joined."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ClampedGate:
    """(up + 1) * gate * sigmoid(alpha * gate), where gate is at most `limit` and up between
    -`limit` and `limit`."""

    alpha: float
    limit: float


# activation(gate) * up; GELU by its approximation with tanh.
Activation = Literal["silu", "gelu_tanh"]
AnyActivation = Activation | ClampedGate


def activation_options(activation: AnyActivation) -> dict[str, Any]:
    """The compile-time constants of `device.activations.gated`."""
    clamped = activation if isinstance(activation, ClampedGate) else None
    return {
        "GELU": activation == "gelu_tanh",
        "ALPHA": clamped.alpha if clamped else 1.0,
        "LIMIT": clamped.limit if clamped else None,
    }
