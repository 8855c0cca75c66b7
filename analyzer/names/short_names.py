"""The short name of a kernel, as engineers call it, and mangled names made readable.

A mangled name (Itanium C++ ABI, "5.1 External Names") holds every name of its source after the
name's length. These are read, with integer arguments of templates; types, substitutions and
parameters are not. A profiler demangles names itself, so only those that it could not are left.
"""

import re
from collections.abc import Callable
from functools import cache, lru_cache

from decodescope.analyzer.names.rules import bundled_document
from decodescope.analyzer.text.plain import plain_line

# The work of a kernel is said early in its name; the types of its arguments follow.
_SEARCHED = 2_000
_NOISE = re.compile(
    r"\(anonymous namespace\)::|<unnamed>::|\bat::native::|\bat::|\bc10::|^void "
    r"|^std::enable_if<.*?>::type (?=\w)"
)
_PLACEHOLDER = re.compile(r"\{(\w+)(?::(\w+))?\}")
_NAMES_OF_DTYPE = {
    "bf16": "bfloat16 __nv_bfloat16 nv_bfloat16 bfloat16_t __hip_bfloat16 hip_bfloat16",
    "f16": "half __half half_t fp16",
    "f32": "float",
    "f64": "double",
    "i64": "long",
    "i32": "int",
    "i16": "short",
    "i8": "int8_t int8",
    "e4m3": "float8_e4m3fn __nv_fp8_e4m3 float_e4m3_t",
    "e5m2": "float8_e5m2 __nv_fp8_e5m2",
}
_DTYPES = {name: dtype for dtype, names in _NAMES_OF_DTYPE.items() for name in names.split()}
# Operators of Inductor that move or view, and compute nothing.
_VIEWS = re.compile(
    r"(?<![a-z])(?:_to_copy|_?unsafe_view|view|transpose|permute|expand|unsqueeze|squeeze|slice"
    r"|select|clone|reshape|split|t)(?![a-z0-9])_?"
)
# Kernels that only call what their template arguments name, and namespaces in mangled names.
_WRAPPERS = frozenset(("Kernel", "Kernel2", "device_kernel", "kentry", "kentry_pt"))
_NO_FUNCTION = re.compile(
    r"enable_\w+|at|cuda|detail|flash|vllm|cute|cutlass|ck_tile|ck|gemm|kernel|device|std|bool|int"
    r"|unsigned|long|float|double|true|false|void|\d\w*|\(\w+\)\w*"
)
_BRACKETS = {"<": ">", "(": ")", "[": "]", "{": "}"}
_IDENTIFIERS = re.compile(r"(?:\w+::)*(\w+)")
_FUNCTION = re.compile(r"[\w:.$~-]+")
_AFFIXES = re.compile(r"^_+(?=[A-Za-z])|(?<=\w)(?:_kernel|Kernel)$")
_MANGLED = re.compile(r"_Z(?=N?K?(?:St|L)?\d)")
# HIP's suffix of a kernel descriptor, and the compiler's of a specialised copy.
_SUFFIX = re.compile(r"(?:\.kd| \[clone \.kd\])$")
# Digits that are no length come first.
_PIECE = re.compile(
    r"L[a-z](?P<integer>n?\d+)E|[ST][0-9A-Z]*_|[EL]\d*_|D[Fv]\d+[_bx]?|(?P<length>\d+)"
    r"|(?P<opens>I)|(?P<closes>E)|."
)
_ANONYMOUS = re.compile(r"_GLOBAL__N_")
_IDENTIFIER = re.compile(r"[^\W\d]\w*$")


def _filled(word: str, match: re.Match[str]) -> str:
    """A word of a template with the texts of its groups, "" if one of them matched nothing."""
    groups = [match[group] for group, _ in _PLACEHOLDER.findall(word)]
    if not all(groups):
        return ""
    return _PLACEHOLDER.sub(lambda place: _CONVERTED[place[2]](match[place[1]]), word)


def _dtype(name: str) -> str:
    last = name.rpartition("::")[2]
    return _DTYPES.get(last.lower(), last.lower())


def _operators(names: str) -> str:
    return _VIEWS.sub("", names).strip("_") or names.strip("_")


_CONVERTED: dict[str | None, Callable[[str], str]] = {
    None: str,
    "lower": str.lower,
    "dtype": _dtype,
    "operators": _operators,
}


@cache
def _rules() -> tuple[tuple[re.Pattern[str], str], ...]:
    return tuple((re.compile(row["pattern"]), row["name"]) for row in bundled_document()["name"])


def _by_rules(text: str) -> str | None:
    for pattern, template in _rules():
        find = pattern.match if pattern.pattern.startswith("^") else pattern.search
        if match := find(text):
            words = (_filled(word, match) for word in template.split())
            if name := " ".join(word for word in words if word):
                return name
    return None


@lru_cache(maxsize=4_096)
def short_name(name: str) -> str:
    """The name by which engineers call the kernel `name`, as `plain_line`.

    It is the name of the first `[[name]]` rule of `roles.toml` that is found; otherwise that of the
    function, without return type, namespaces, template arguments, parameters and "_kernel". It is
    never longer than `readable_kernel` of the name.
    """
    readable = readable_kernel(name)
    text = without_noise(readable)[:_SEARCHED]
    short = _by_rules(text) or _function(text)
    return short if len(short) <= len(readable) else readable


def without_noise(readable: str) -> str:
    """A readable name without "void" and namespaces that tell nothing."""
    return _NOISE.sub("", readable)


def _function(text: str) -> str:
    """The name of a function in its signature; `text` itself if there is none."""
    qualified = _qualified(text)
    function, arguments = _without_arguments(qualified)
    if not _FUNCTION.fullmatch(function):
        return text
    namespace, _, last = function.rpartition("::")
    if last in _WRAPPERS:
        called = (name[1] for name in _IDENTIFIERS.finditer(arguments))
        last = next((name for name in called if not _NO_FUNCTION.fullmatch(name)), last)
    elif last == "kernel" and namespace:
        last = namespace.rpartition("::")[2]
    while (shorter := _AFFIXES.sub("", last)) != last:
        last = shorter
    return last or text


def _qualified(text: str) -> str:
    """The function with its namespaces and template arguments: the text before the parameters,
    behind the return type."""
    if "<" not in text and "(" not in text:
        return text
    start = 0
    opened: list[str] = []
    for place, character in enumerate(text):
        if character == "(" and not opened and place > start:
            return text[start:place]
        if character in _BRACKETS:
            opened.append(_BRACKETS[character])
        elif opened and character == opened[-1]:
            opened.pop()
        elif character == " " and not opened and text[place + 1 : place + 2] not in ("(", "<", ""):
            start = place + 1
    return text[start:]


def _without_arguments(qualified: str) -> tuple[str, str]:
    kept, arguments, start = "", "", 0
    opened: list[str] = []
    for place, character in enumerate(qualified):
        if character in _BRACKETS:
            start = place + 1 if not opened else start
            opened.append(_BRACKETS[character])
        elif opened and character == opened[-1]:
            opened.pop()
            arguments = arguments if opened else qualified[start:place]
        elif not opened:
            kept += character
    return kept.strip(), qualified[start:] if opened else arguments


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
