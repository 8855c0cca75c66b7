"""Facts that classes of transformers fix by themselves: a config.json does not say them.

Everything else is read from fields. Source: the configuration and modelling files of
`transformers.models.<model_type>`.
"""

from functools import cache
from importlib import resources
from typing import Any

import msgspec

from decodescope.analyzer.modelling.shape import QkNorm


class Family(msgspec.Struct, frozen=True):
    """The models of one `model_type`. `defaults` are values of fields that their files may leave
    out.

    `qkv_bias`: Q, K and V have a bias and O has none, whatever the fields say. Without `o_bias`,
    attention_bias is about Q, K and V only. Four `norms_per_layer`: a norm behind attention and MLP
    as well. `norm_bias`: LayerNorm instead of RMSNorm. Without `gated` the MLP has two matrices
    instead of three. `shared_gate`, `expert_bias` and `router_bias` are those of `Experts`.
    """

    qkv_bias: bool = False
    o_bias: bool = True
    qk_norm: QkNorm = "none"
    norms_per_layer: int = 2
    norm_bias: bool = False
    gated: bool = True
    attention_gate: bool = False
    sinks: bool = False
    shared_gate: bool = False
    expert_bias: bool = False
    router_bias: bool = False
    defaults: dict[str, Any] = {}


@cache
def families() -> dict[str, Family]:
    """The families that fix something, by their `model_type`: those of families.json."""
    data = resources.files(__package__).joinpath("families.json").read_bytes()
    return msgspec.json.decode(data, type=dict[str, Family])
