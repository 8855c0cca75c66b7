"""Strings that try to do more than to be shown.

`HOSTILE` sets a title, colours, clears the screen, reverses its line, begins another one, is a
formula, an emoji code, markup, a link and HTML. `SHOWN` is how every output shows it.
"""

import re
import unicodedata

from hypothesis import strategies as st

HOSTILE = (
    "[/][bold]=cmd|:fire:\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\u2028\n\r\tfake  row"
    "[link=https://x.example]y[/link]<b>`"
)
SHOWN = (
    r"[/][bold]=cmd|:fire:\x1b]0;owned\x07\x1b[31m\x9b2J\u202e\u2028\n\r\tfake  row"
    "[link=https://x.example]y[/link]<b>`"
)
# Controls, formats (bidirectional, zero width), lone surrogates, line and paragraph separators.
UNSAFE = {"Cc", "Cf", "Cs", "Zl", "Zp"}

anything = st.text(st.characters(categories=("L", "N", "P", "S", "Z", "C"))) | st.text(
    st.sampled_from("\x1b[]0;m\x07\x9b\u202e\u200b\u200d\n\r\t\\/a=|é👩\udce9")
)


def unsafe(text: str, styling: str = "") -> str:
    """The characters of `text` that a terminal may obey, without line ends and `styling`."""
    rest = re.sub(styling, "", text) if styling else text
    return "".join(c for c in rest if c != "\n" and unicodedata.category(c) in UNSAFE)
