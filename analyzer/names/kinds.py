"""The words for what a kernel computes: its kind, its family, and its role in a decode step."""

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
# One letter for each kind, so that the kinds of a sequence of ops are a string.
UNKNOWN_LETTER = "?"
KINDS = {
    "product": "P", "product_tail": "S", "gated_product": "G", "attention": "A", "softmax": "s",
    "norm": "N", "norm_part": "n", "rope": "r", "rope_part": "o", "kv_write": "k",
    "activation": "g", "routing": "R", "permutation": "z", "expert": "X", "quantise": "q",
    "communication": "c", "add": "+", "multiply": "*", "concatenate": "C", "copy": "m",
    "sampling": "t", "convolution": "v", "elementwise": "e",
}  # fmt: skip
# The family of a kind, for a rule that names no other.
FAMILY_OF_KIND = {
    "product": "matmul",
    "product_tail": "matmul",
    "gated_product": "matmul",
    "expert": "matmul",
    "convolution": "matmul",
    "attention": "attention",
    "softmax": "reduction",
    "norm": "reduction",
    "quantise": "reduction",
    "routing": "reduction",
    "permutation": "reduction",
    "sampling": "reduction",
    "norm_part": "elementwise",
    "rope": "elementwise",
    "rope_part": "elementwise",
    "activation": "elementwise",
    "add": "elementwise",
    "multiply": "elementwise",
    "elementwise": "elementwise",
    "kv_write": "copy",
    "concatenate": "copy",
    "copy": "copy",
    "communication": "communication",
}
# Kinds of communication, and what a communicating kernel without a known collective does.
COMMUNICATIONS = (
    *("expert exchange", "NVSHMEM", "MSCCL++", "NCCL/RCCL", "custom collective"),
    "copy between GPUs",
)
OTHER_OPERATION = "other"
