"""Colours and letters: one set of colours for each family of meanings.

The sets are the parts of a step, variants, and states. Of the parts, families of ops are cool and
classes of gaps are warm; variants are light. Within a set, any two colours stay apart for people
with normal and with every dichromatic colour vision (a CIE76 distance of at least 12), and no
colour is in two sets. A role has the colour of what most of its kernels do. Views add a letter, a
word or a pattern: no meaning is carried by colour alone. Several colours are from Okabe and Ito,
"Color Universal Design" (2008).
"""

GAP_COLORS = {
    "host_wait": "#D55E00",
    "launch_call": "#955F2D",
    "launch_latency": "#F1A83B",
    "dependency": "#B9176C",
    "kernel_floor": "#BDAC9B",
    "graph_internal": "#F3B9C5",
    "unlinked": "#F0E442",
}
GAP_LETTERS = {name: name[0] for name in GAP_COLORS} | {"launch_call": "c"}
FAMILY_COLORS = {
    "matmul": "#56B4E9",
    "attention": "#009E73",
    "reduction": "#A489C2",
    "elementwise": "#B6E39F",
    "copy": "#3E7DE6",
    "communication": "#7E51BF",
    "other": "#98A2AE",
}
FAMILY_LETTERS = {name: name[0].upper() for name in FAMILY_COLORS} | {"communication": "X"}
ROLE_FAMILIES = {
    **dict.fromkeys(("qkv", "o", "gate_up", "down", "router", "experts", "head"), "matmul"),
    **dict.fromkeys(("norm", "qk_norm", "sampling"), "reduction"),
    **dict.fromkeys(("rope", "activation", "quantise"), "elementwise"),
    **dict.fromkeys(("kv_write", "copy"), "copy"),
    "attention": "attention",
    "communication": "communication",
    "other": "other",
}
PART_FAMILIES = ROLE_FAMILIES | {family: family for family in FAMILY_COLORS} | {"memcpy": "copy"}
PROFILER_COLOR = "#5D6B7B"
PART_COLORS = {
    **{part: FAMILY_COLORS[family] for part, family in PART_FAMILIES.items()},
    **GAP_COLORS,
    "profiler": PROFILER_COLOR,
}
PART_LETTERS = {
    **FAMILY_LETTERS,
    **GAP_LETTERS,
    "qkv": "Q",
    "qk_norm": "K",
    "rope": "P",
    "kv_write": "W",
    "o": "U",
    "norm": "N",
    "gate_up": "G",
    "activation": "V",
    "down": "D",
    "router": "T",
    "experts": "F",
    "head": "H",
    "sampling": "S",
    "quantise": "Z",
    "memcpy": "Y",
    "profiler": "p",
}
LIMIT_COLOR = "#1FA3A3"
GROUP_COLORS = {
    "kernels": FAMILY_COLORS["matmul"],
    "host": GAP_COLORS["host_wait"],
    "communication": FAMILY_COLORS["communication"],
    "copies": FAMILY_COLORS["copy"],
}
VARIANT_COLORS = ("#8EC8FF", "#FABB62", "#6FE0A8", "#C57DDE", "#E8E08A", "#FF8F80", "#7F8CFF")
STATE_COLORS = {"good": "#2FD67B", "warn": "#FFB000", "bad": "#FF4D4D"}
