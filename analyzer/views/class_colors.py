"""The Okabe-Ito palette, which colour-blind people can distinguish, and the meaning of each colour.
`OCHRE` is a darker orange, because the palette has one colour less than there are meanings.

Views add a letter, a word or a pattern: no meaning is carried by colour alone.
Source of the palette: Okabe and Ito, "Color Universal Design" (2008).
"""

ORANGE = "#E69F00"
SKY = "#56B4E9"
GREEN = "#009E73"
YELLOW = "#F0E442"
BLUE = "#0072B2"
VERMILLION = "#D55E00"
PURPLE = "#CC79A7"
OCHRE = "#8F5A00"
GREY = "#999999"

GAP_COLORS = {
    "host_wait": VERMILLION,
    "launch_call": OCHRE,
    "launch_latency": ORANGE,
    "dependency": BLUE,
    "kernel_floor": GREY,
    "graph_internal": SKY,
    "unlinked": YELLOW,
}
GAP_LETTERS = {name: name[0] for name in GAP_COLORS} | {"launch_call": "c"}
FAMILY_COLORS = {
    "matmul": SKY,
    "attention": GREEN,
    "reduction": PURPLE,
    "elementwise": YELLOW,
    "copy": BLUE,
    "communication": ORANGE,
    "other": GREY,
}
PART_COLORS = {
    "limit": GREEN,
    "busy": GREEN,
    "kernel_inefficiency": PURPLE,
    **GAP_COLORS,
    "host_tail": "#5F6B7A",
}
