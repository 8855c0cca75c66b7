"""The words for what a kernel computes: its kind, its family, and its role in a decode step."""

ROLES = (
    "qkv",
    "qk_norm",
    "rope",
    "kv_write",
    "attention",
    "o",
    "norm",
    "gate_up",
    "activation",
    "down",
    "router",
    "experts",
    "head",
    "sampling",
    "communication",
    "quantise",
    "copy",
    "other",
)
UNKNOWN = "unknown"
UNKNOWN_LETTER = "?"
OTHER_OPERATION = "other"

# By kind: one letter, so that the kinds of a sequence of ops are a string; the family, if a rule
# names no other; the role of an op whose name and place decide none.
_KINDS = {
    "product": ("P", "matmul", "other"),
    "product_tail": ("S", "matmul", "other"),
    "gated_product": ("G", "matmul", "gate_up"),
    "attention": ("A", "attention", "attention"),
    "softmax": ("s", "reduction", "other"),
    "norm": ("N", "reduction", "norm"),
    "norm_part": ("n", "elementwise", "other"),
    "rope": ("r", "elementwise", "rope"),
    "rope_part": ("o", "elementwise", "other"),
    "kv_write": ("k", "copy", "kv_write"),
    "activation": ("g", "elementwise", "activation"),
    "routing": ("R", "reduction", "router"),
    "permutation": ("z", "reduction", "other"),
    "expert": ("X", "matmul", "experts"),
    "quantise": ("q", "reduction", "quantise"),
    "communication": ("c", "communication", "communication"),
    "add": ("+", "elementwise", "other"),
    "multiply": ("*", "elementwise", "other"),
    "concatenate": ("C", "copy", "copy"),
    "copy": ("m", "copy", "copy"),
    "sampling": ("t", "reduction", "sampling"),
    "convolution": ("v", "matmul", "other"),
    "elementwise": ("e", "elementwise", "other"),
}
_letters, _families, _roles = zip(*_KINDS.values(), strict=True)
# In the order in which kinds name them.
FAMILIES = (*dict.fromkeys(_families), "other")
KINDS: dict[str, str] = dict(zip(_KINDS, _letters, strict=True))
FAMILY_OF_KIND: dict[str, str] = dict(zip(_KINDS, _families, strict=True))
ROLE_OF_LETTER: dict[str, str] = dict(zip(_letters, _roles, strict=True))
