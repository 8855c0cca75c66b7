"""Mangled kernel names made readable.

A mangled name (Itanium C++ ABI, "5.1 External Names") holds every name of its source after the
name's length. These are read, with integer arguments of templates; types, substitutions and
parameters are not. A profiler demangles names itself, so only those that it could not are left.
"""

import re

from decodescope.analyzer.text.plain import plain_line

_MANGLED = re.compile(r"_Z(?=N?K?(?:St|L)?\d)")
# HIP's suffix of a kernel descriptor, and the compiler's of a specialised copy.
_SUFFIX = re.compile(r"(?:\.kd| \[clone \.kd\])$")
# What holds digits that are no length comes first.
_PIECE = re.compile(
    r"L[a-z](?P<integer>n?\d+)E|[ST][0-9A-Z]*_|[EL]\d*_|D[Fv]\d+[_bx]?|(?P<length>\d+)"
    r"|(?P<opens>I)|(?P<closes>E)|."
)
_ANONYMOUS = re.compile(r"_GLOBAL__N_")
_IDENTIFIER = re.compile(r"[^\W\d]\w*$")


def readable_kernel(name: str) -> str:
    """`name` as `plain_line`, without HIP's suffix; of a mangled name, the function with its
    namespaces and, in angle brackets, the names and integers among its template arguments."""
    name = plain_line(_SUFFIX.sub("", name))
    start = _MANGLED.match(name)
    return (_names_in(name, start.end()) if start else None) or name


def _names_in(mangled: str, at: int) -> str | None:
    """The names up to the first length that is wrong; None without a function."""
    function: list[str] = []
    arguments: list[str] = []
    depth = 0
    while at < len(mangled):
        piece = _PIECE.match(mangled, at)
        if piece is None:
            break
        at = piece.end()
        if piece["opens"] and function:
            depth += 1
        elif piece["closes"] and not depth:
            break
        elif piece["integer"]:
            arguments.append(piece["integer"].replace("n", "-"))
        elif piece["length"]:
            word = mangled[at : at + int(piece["length"])] if len(piece["length"]) < 5 else ""
            at += len(word)
            if len(word) != int(piece["length"]) or not _IDENTIFIER.match(word):
                break
            word = "(anonymous namespace)" if _ANONYMOUS.match(word) else word
            (arguments if depth else function).append(word)
    if not function:
        return None
    return "::".join(function) + (f"<{', '.join(arguments)}>" if arguments else "")
