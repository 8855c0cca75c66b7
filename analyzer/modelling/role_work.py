"""The bytes and FLOPs of a role, and what becomes of them where kernels are fused."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class RoleWork:
    """What a role must move and compute, each tensor once.

    `kv_bytes` are read from the KV cache, or read from and written to a state that stands for it.
    `activation_bytes` are its inputs and outputs, and the new rows of the cache. `flops` are those
    of matrix products and attention; a multiply-add counts as two.
    """

    weight_bytes: int = 0
    kv_bytes: int = 0
    activation_bytes: int = 0
    flops: int = 0

    @property
    def bytes(self) -> int:
        """All bytes."""
        return self.weight_bytes + self.kv_bytes + self.activation_bytes

    def __add__(self, other: "RoleWork") -> "RoleWork":
        return RoleWork(
            self.weight_bytes + other.weight_bytes,
            self.kv_bytes + other.kv_bytes,
            self.activation_bytes + other.activation_bytes,
            self.flops + other.flops,
        )

    def times(self, count: int) -> "RoleWork":
        """The work of `count` such roles."""
        return RoleWork(
            self.weight_bytes * count,
            self.kv_bytes * count,
            self.activation_bytes * count,
            self.flops * count,
        )


# Where the work of a role is done that has no kernel of its own, the likeliest first.
_DONE_BY: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "norm": ("qkv", "gate_up", "router", "experts", "head"),
        "qk_norm": ("rope", "kv_write", "qkv", "attention"),
        "rope": ("kv_write", "qk_norm", "qkv", "attention"),
        "kv_write": ("rope", "qk_norm", "qkv", "attention"),
        "activation": ("gate_up", "experts", "down"),
        "gate_up": ("experts", "down"),
        "down": ("experts", "gate_up"),
        "router": ("experts", "gate_up"),
        "sampling": ("head",),
        "copy": ("norm", "qkv"),
    }
)


def with_fused_roles(work: Mapping[str, RoleWork], present: Collection[str]) -> dict[str, RoleWork]:
    """The work of the roles that have kernels, `present`.

    The weights, K, V and FLOPs of any other role go to the role whose kernel does it; its
    activations stay on the chip there. A role that nothing present stands for keeps its work, so
    that the sum of the weights stays the same.
    """
    found = dict(work)
    for role in work:
        if role in present:
            continue
        by = next((one for one in _DONE_BY.get(role, ()) if one in present and one in work), None)
        if by is not None:
            found[by] += replace(found.pop(role), activation_bytes=0)
    return found


def step_bytes(work: Mapping[str, RoleWork]) -> int:
    """The bytes that a step must read: weights, and K and V. The numerator of its MBU."""
    return sum(one.weight_bytes + one.kv_bytes for one in work.values())


def step_flops(work: Mapping[str, RoleWork]) -> int:
    """FLOPs of the matrix products and the attention of a step."""
    return sum(one.flops for one in work.values())
