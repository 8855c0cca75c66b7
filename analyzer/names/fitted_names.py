"""Names at a width: cut, and distinct within one table."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import takewhile, zip_longest

from rich.cells import cell_len

from decodescope.analyzer.names.short_names import readable_kernel, short_name, without_noise
from decodescope.analyzer.text.plain import plain_line

# A number after "#", as the last resort, and something of the name before it.
MIN_CELLS = 8
_TOKEN = re.compile(r"[A-Za-z0-9]+|[^A-Za-z0-9]")
_MAX_TOKENS = 3_000
# More names that differ by a part of them are generated ones; numbers do for these.
_MAX_ALIKE = 60
_SEPARATOR = "·"
# No short name is longer.
WHOLE_CELLS = 1_000
_MOST_CHARACTER_CELLS = 2
# Around a label, these say nothing.
_BLANK = " ,:<>()…"


def cut_start(text: str, cells: int) -> str:
    """`text` as `plain_line` in at most `cells` cells: an ellipsis replaces its start."""
    return _cut(text, cells, lambda text, kept: f"…{text[len(text) - kept :]}")


def cut_middle(text: str, cells: int) -> str:
    """`text` as `plain_line` in at most `cells` cells: an ellipsis replaces its middle."""

    def keep(text: str, kept: int) -> str:
        tail = kept // 3
        return f"{text[: kept - tail]}…{text[len(text) - tail :]}"

    return _cut(text, cells, keep)


def _cut(text: str, cells: int, keep: Callable[[str, int], str]) -> str:
    """`text` as `plain_line`, else as many characters of it as `keep` fits into `cells` cells."""
    text = plain_line(text)
    if cell_len(text) <= cells:
        return text
    kept, over = cells, 1
    while over > 0:
        kept -= -(-over // _MOST_CHARACTER_CELLS)
        if kept < 0:
            return ""
        shown = keep(text, kept)
        over = cell_len(shown) - cells
    return shown


def short_kernel(name: str, cells: int) -> str:
    """`short_name` in at most `cells` cells of a terminal; the middle is left out if need be."""
    return cut_middle(short_name(name), cells)


def short_kernels(names: Iterable[str], cells: int) -> dict[str, str]:
    """For each name `short_kernel`; distinct names have distinct ones from `MIN_CELLS` cells on."""
    shown = {name: short_kernel(name, cells) for name in names}
    return told_apart(shown, cells, lambda name: without_noise(readable_kernel(name)))


def told_apart(
    shown: Mapping[str, str], cells: int, whole: Callable[[str], str] = plain_line
) -> dict[str, str]:
    """The texts that names are shown as, made distinct from `MIN_CELLS` cells on.

    Names with one text keep its beginning, then "·" and what differs between the names, as `whole`
    writes them: an argument of a template, a tile size. If what differs does not fit either, a
    number in order of the names.
    """
    shown = dict(shown)
    for alike in _alike(shown):
        if len(alike) > _MAX_ALIKE:
            continue
        labels = _fitting(_differences([whole(name) for name in alike]), cells - cells // 3 - 1)
        for name, label in zip(alike, labels, strict=True):
            room = cells - cell_len(_SEPARATOR + label)
            if label and room >= cells // 3:
                shown[name] = cut_middle(shown[name], room) + _SEPARATOR + label
    taken = set(shown.values())
    for alike in _alike(shown):
        number = 0
        for name in alike:
            short = shown[name]
            while short in taken and cells >= MIN_CELLS:
                number += 1
                suffix = f"#{number}"
                short = cut_middle(shown[name], cells - len(suffix)) + suffix
            taken.add(short)
            shown[name] = short
    return shown


def _fitting(labels: list[str], room: int) -> list[str]:
    cut = [cut_middle(label, room) for label in labels]
    return cut if len(set(cut)) == len(labels) else labels


class ShortNames:
    """`short_kernels` of one table, computed once for each of the last two widths. Where a name
    fits whole, it is also told apart from the names `beside` the table, so that a kernel has one
    name in all tables."""

    def __init__(self, names: Iterable[str], beside: Iterable[str] = ()) -> None:
        own, others = tuple(names), tuple(beside)
        self._whole = lru_cache(maxsize=1)(lambda: short_kernels((*others, *own), WHOLE_CELLS))
        self._of = lru_cache(maxsize=2)(lambda cells: short_kernels(own, cells))

    def of(self, name: str, cells: int) -> str:
        whole = self._whole()[name]
        return whole if cell_len(whole) <= cells else self._of(cells)[name]


def _alike(shown: dict[str, str]) -> Iterator[list[str]]:
    by_text = defaultdict(list)
    for name, text in shown.items():
        by_text[text].append(name)
    for alike in by_text.values():
        if len(alike) > 1:
            yield sorted(alike)


def _differences(names: Sequence[str]) -> list[str]:
    """The tokens of each name that tell it from the others, the first that do; gaps are shown by
    "…"."""
    tokens = [_TOKEN.findall(name)[:_MAX_TOKENS] for name in names]
    first = common_length(tokens)
    backwards = [tokens_of_name[: first - 1 if first else None : -1] for tokens_of_name in tokens]
    last = common_length(backwards)
    middles = [tokens_of_name[first : len(tokens_of_name) - last] for tokens_of_name in tokens]
    labels = [""] * len(names)
    before = -1
    for place, column in enumerate(zip_longest(*middles, fillvalue="")):
        gap = "…" if place > before + 1 else ""
        longer = [
            label + (gap if label and token else "") + token
            for label, token in zip(labels, column, strict=True)
        ]
        if _distinct(longer) > _distinct(labels):
            labels, before = longer, place
        if _distinct(labels) == len(labels):
            break
    return [label.strip(_BLANK) for label in labels]


def _distinct(labels: Iterable[str]) -> int:
    """How many labels can be told apart by more than their punctuation."""
    return len({label.strip(_BLANK) for label in labels})


def common_length(sequences: Sequence[Sequence[str]]) -> int:
    """How many elements all sequences begin with."""
    columns = zip(*sequences, strict=False)
    return sum(1 for _ in takewhile(lambda column: len(set(column)) == 1, columns))


def path_around(paths: Iterable[str]) -> str:
    """The longest path, with its "/", that all paths are in; "" without one."""
    outer = [path.split("/")[:-1] for path in paths]
    return "".join(f"{part}/" for part in next(iter(outer), [])[: common_length(outer)])
