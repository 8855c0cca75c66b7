"""Text for terminals and files that cannot hold every Unicode character."""

from rich.cells import cell_len

_FROM = (
    "\u2013\u2014\u2212…·•µ\u00d7±▸▾▶◂●○■◆▲▼→←↑↓✓✕⚠┆▁▂▃▄▅▆▇█▔▏▎▍▌▋▊▉▐░"
    "\u2018\u2019\u201c\u201d\u00a0≤≥≈÷\u00b0"
)
_TO = "---~|*ux~>v><*o#*^v><^vvx!:.:-=+*%@-||||||||.''\"\" <>~/'"
_TABLE = str.maketrans(_FROM, _TO)


def to_ascii(text: str) -> str:
    """`text` in ASCII, with the same number of terminal cells."""
    if text.isascii():
        return text
    return "".join(_fallback(char) for char in text.translate(_TABLE))


def _fallback(char: str) -> str:
    if char < "\x80":
        return char
    if "\u2500" <= char <= "\u257f":
        return "-" if char in "─━╌╍┄┅┈┉═╴╶╸╺" else "|" if char in "│┃╎╏┆┇┊┋║╵╷╹╻" else "+"
    return "?" * cell_len(char)
