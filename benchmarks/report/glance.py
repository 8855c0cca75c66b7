"""The claims at a glance: each published figure once, beside what every GPU gave."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from benchmarks.claims.catalog import CLAIMS
from benchmarks.claims.report import Row, Source
from benchmarks.claims.table import spread_text, value_text
from benchmarks.report.claims import Recorded, Section, counted, gpu_word, gpus, is_reached
from decodescope.analyzer.text.formatting import UNKNOWN

# Records that were written before sources had names have none.
_NAMES = {claim.source.url: claim.source.name for claim in CLAIMS}


@dataclass(frozen=True, slots=True)
class Group:
    """The rows of a claim with the same published figure, by GPU; a claim that failed has none."""

    claims: dict[str, Recorded]
    rows: dict[str, list[Row]]
    whole: bool

    @property
    def source(self) -> Source:
        return next(iter(self.claims.values())).claim.source

    @property
    def what(self) -> str:
        """The claim's title, where all its conditions are here; otherwise what the rows have in
        common."""
        claim = next(iter(self.claims.values())).claim
        alone = any(len(rows) == 1 for rows in self.rows.values())
        titled = self.whole and not alone
        words = claim.title if titled else common_words([one.what for one in self._all()])
        return f"`{claim.name}`: {words}"

    @property
    def theirs(self) -> str:
        """The published figure."""
        row = next(iter(self._all()), None)
        return UNKNOWN if row is None else value_text(row.published, row.unit)

    def here(self, gpu: str) -> str:
        """The median with its limit, or the range of the rows' medians."""
        rows = self.rows.get(gpu, [])
        text = medians_text(rows)
        if len(rows) != 1 or rows[0].measured is None or rows[0].limit is None:
            return text
        return f"{text} (limit {value_text(rows[0].limit, rows[0].unit)})"

    def conditions(self, gpu: str) -> str:
        """Every row with its rounds and its limit, where one figure has several; else nothing."""
        rows = self.rows.get(gpu, ())
        if len(rows) < 2:
            return ""
        names = distinct_words([row.what for row in rows])
        found = [f"{name} {_measured_text(row)}" for name, row in zip(names, rows, strict=True)]
        return f"{self.what} (theirs {self.theirs}): {'; '.join(found)}"

    def reached(self, gpu: str) -> str:
        """How many rows are reached, of those that count; in bold where one is not."""
        rows = self._counted(gpu)
        if not rows:
            return UNKNOWN
        text = f"{sum(map(is_reached, rows))} of {len(rows)}"
        return text if all(map(is_reached, rows)) else f"**{text}**"

    @property
    def because(self) -> str:
        """The shortest reason of the rows that are not reached, on a GPU of the source if there is
        one; named, if there are several GPUs."""
        missed = [
            (f"not measured: {row.error}" if row.error is not None else row.explanation, gpu)
            for gpu in self.rows
            for row in self._counted(gpu)
            if not is_reached(row)
        ]
        missed += [
            (f"not measured: {one.claim.error}", gpu)
            for gpu, one in self.claims.items()
            if one.claim.error is not None
        ]

        def place(reason: tuple[str, str]) -> tuple[bool, int]:
            return self.source.gpu_like(reason[1]) is None, len(reason[0])

        why, gpu = min(missed, key=place, default=("", ""))
        return f"{gpu_word(gpu)}: {why}" if why and len(self.claims) > 1 else why

    def _all(self) -> Iterator[Row]:
        return (row for rows in self.rows.values() for row in rows)

    def _counted(self, gpu: str) -> list[Row]:
        found = self.rows.get(gpu, ())
        return [row for row in counted(self.claims[gpu]) if row in found] if found else []


def groups(section: Section) -> list[Group]:
    """The published figures of a source that count, in the order of its claims."""
    found = []
    for claims in _by_claim(section):
        rows = _by_figure(claims, baseline=False)
        found += [Group(claims, one, len(rows) == 1) for one in rows]
        if not rows and any(one.claim.error is not None for one in claims.values()):
            found.append(Group(claims, {}, True))
    return found


def condition_lines(section: Section, gpu: str) -> list[str]:
    """The published figures that several conditions of a source share, with every condition."""
    return [line for group in groups(section) if (line := group.conditions(gpu))]


def baselines(sections: Sequence[Section]) -> Iterator[str]:
    """What sources say of what they improve on, beside the same here."""
    for section in sections:
        for claims in _by_claim(section):
            for rows in _by_figure(claims, baseline=True):
                group = Group(claims, rows, False)
                here = "; ".join(f"{group.here(gpu)} on {gpu_word(gpu)}" for gpu in rows)
                yield f"{group.what}: theirs {group.theirs} ({gpu_text(group.source)}); here {here}"


def short_name(source: Source) -> str:
    """A source in a word or two."""
    return source.name or _NAMES.get(source.url) or source.title


def gpu_text(source: Source) -> str:
    """The GPU of a source."""
    return source.gpu or "GPU not named"


def glance_header(sections: Sequence[Section]) -> list[str]:
    """The columns of `glance_rows`."""
    here = [cell for gpu in gpus(sections) for cell in (gpu_word(gpu), "reached")]
    return ["source, its GPU", "figure", "theirs", *here, "not reached because"]


def glance_rows(sections: Sequence[Section]) -> Iterator[list[str]]:
    """One line for each published figure; the first of a source names it."""
    every = gpus(sections)
    for section in sections:
        for number, group in enumerate(groups(section)):
            here = [cell for gpu in every for cell in (group.here(gpu), group.reached(gpu))]
            link = f"[{short_name(group.source)}]({group.source.url}), {gpu_text(group.source)}"
            yield ["" if number else link, group.what, group.theirs, *here, group.because]


def common_words(whats: Sequence[str]) -> str:
    """What names have in common, at their beginnings and at their ends, without what is in
    parentheses where that differs."""
    if len(set(whats)) > 1:
        whats = [re.sub(r"\s*\([^)]*\)", "", one) for one in whats]
    if len(set(whats)) <= 1:
        return next(iter(whats), "")
    words = [one.split() for one in whats]
    first = _same_first(words)
    rest = [one[len(first) :] for one in words]
    last = _same_first([one[::-1] for one in rest])[::-1]
    return " ".join([*first, "…", *last])


def distinct_words(whats: Sequence[str]) -> list[str]:
    """Names without the words with which all of them begin or end; whole where nothing is left."""
    words = [one.split() for one in whats]
    first = len(_same_first(words))
    last = len(_same_first([one[first:][::-1] for one in words]))
    return [" ".join(one[first : len(one) - last]) or " ".join(one) for one in words]


def _measured_text(row: Row) -> str:
    if row.error is not None:
        return f"not measured: {row.error}"
    limit = "" if row.limit is None else f", limit {value_text(row.limit, row.unit)}"
    return spread_text(row.measured, row.unit) + limit


def medians_text(rows: Sequence[Row]) -> str:
    """The median of one row; of several their range, and how many they are."""
    found = [row for row in rows if row.measured is not None]
    if not found:
        return UNKNOWN
    medians = sorted(row.measured.median for row in found if row.measured is not None)
    low, high = (value_text(one, found[0].unit) for one in (medians[0], medians[-1]))
    if len(found) == 1:
        return low
    return f"{low if low == high else f'{low} to {high}'} in {len(found)} conditions"


def _same_first(lists: Sequence[Sequence[str]]) -> list[str]:
    """The words with which all lists begin."""
    together = zip(*lists, strict=False)
    return [words[0] for words in takewhile(lambda words: len(set(words)) == 1, together)]


def _by_claim(section: Section) -> list[dict[str, Recorded]]:
    """The claims of a source, each by GPU."""
    found: dict[str, dict[str, Recorded]] = {}
    for gpu, measured in section.measured.items():
        for one in measured:
            found.setdefault(one.claim.name, {})[gpu] = one
    return list(found.values())


def _by_figure(claims: dict[str, Recorded], *, baseline: bool) -> list[dict[str, list[Row]]]:
    """The rows of a claim with a published figure, one group for each figure, by GPU."""
    found: dict[tuple[str, float], dict[str, list[Row]]] = {}
    for gpu, one in claims.items():
        for row in one.claim.rows:
            if row.published is not None and row.baseline == baseline:
                by_gpu = found.setdefault((row.unit, row.published), {})
                by_gpu.setdefault(gpu, []).append(row)
    return list(found.values())
