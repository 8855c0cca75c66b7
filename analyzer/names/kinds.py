"""The words for what a kernel computes: its kind, its family, and its role in a decode step."""

from typing import NamedTuple

ROLES = (
    *("qkv", "qk_norm", "rope", "kv_write", "attention", "o", "norm", "gate_up", "activation"),
    *("down", "router", "experts", "head", "sampling", "communication", "quantise", "copy"),
    "other",
)
FAMILIES = (
    *("matmul", "attention", "reduction", "elementwise", "copy"),
    *("communication", "other"),
)
UNKNOWN = "unknown"
UNKNOWN_LETTER = "?"
OTHER_OPERATION = "other"


class Kind(NamedTuple):
    """A kind of kernel: one letter, so that the kinds of a sequence of ops are a string; its
    family, if a rule names no other; and the role of an op whose place decides none."""

    letter: str
    family: str
    role: str = "other"


KINDS = {
    "product": Kind("P", "matmul"),
    "product_tail": Kind("S", "matmul"),
    "gated_product": Kind("G", "matmul", "gate_up"),
    "attention": Kind("A", "attention", "attention"),
    "softmax": Kind("s", "reduction"),
    "norm": Kind("N", "reduction", "norm"),
    "norm_part": Kind("n", "elementwise"),
    "rope": Kind("r", "elementwise", "rope"),
    "rope_part": Kind("o", "elementwise"),
    "kv_write": Kind("k", "copy", "kv_write"),
    "activation": Kind("g", "elementwise", "activation"),
    "routing": Kind("R", "reduction", "router"),
    "permutation": Kind("z", "reduction"),
    "expert": Kind("X", "matmul", "experts"),
    "quantise": Kind("q", "reduction", "quantise"),
    "communication": Kind("c", "communication", "communication"),
    "add": Kind("+", "elementwise"),
    "multiply": Kind("*", "elementwise"),
    "concatenate": Kind("C", "copy", "copy"),
    "copy": Kind("m", "copy", "copy"),
    "sampling": Kind("t", "reduction", "sampling"),
    "convolution": Kind("v", "matmul"),
    "elementwise": Kind("e", "elementwise"),
}
