"""Shapes of the families that four ranks divide, their parts of odd sizes."""

from typing import Any

from tests.helpers import families
from tests.helpers.families import CONFIGS, MIXTURES

RANKS = (2, 4)
GEMMA4_MIXTURE: dict[str, Any] = {
    "enable_moe_block": True,
    "num_experts": 4,
    "top_k_experts": 2,
    "moe_intermediate_size": 20,
}
# A family, and whether ranks hold whole experts.
CASES = [(name, False) for name in families.BLOCKS]
CASES += [(name, ep) for name in MIXTURES for ep in (False, True)]
_HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2}
_WIDTHS = {
    "hidden_size": 100,
    "intermediate_size": 132,
    "moe_intermediate_size": 20,
    "shared_expert_intermediate_size": 148,
}
_COUNTS = {"num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4}


def shape_of(name: str) -> dict[str, Any]:
    """The changes of a family's configuration."""
    given = CONFIGS[name]
    changes = {} if given["num_attention_heads"] % 4 == 0 else _HEADS
    changes = changes | {field: size for field, size in _WIDTHS.items() if given.get(field, 4) % 4}
    return changes | {field: count for field, count in _COUNTS.items() if field in given}
