"""The candidates of a comparison: the variants of a live run, or files."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from decodescope.analyzer.reports.step_figures import communication_fraction
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.tables.waiting_table import RankFile
from decodescope.tui.model.comparing import SideName
from decodescope.tui.model.shelf import FileEntry
from decodescope.tui.model.view import View

_INTERPRETED = "Triton's interpreter: tokens and accuracy, no speed"
# Of the bundled recordings, what shows most: it is offered where there is nothing else to compare.
DEMO = ("eager", "fused+graph")
_A_AND_B: tuple[SideName, SideName] = ("A", "B")


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant, whose `key` is its name, or a file, whose `key` is its path. `unavailable` says
    why it cannot be compared. `side`: the side of a comparison that it is on, "x" of a variant."""

    key: str
    name: str
    about: str
    unavailable: str | None = None
    side: SideName = ""


def comparison_candidates(view: View) -> tuple[Candidate, ...]:
    """The variants of a live run, those that can be compared first; where fewer than two are timed,
    recordings follow. Else files: what is open, its folder, the bundled recordings. Until the user
    changes it, every variant that is timed is chosen."""
    if view.kind != "live":
        return _files(view)
    if view.hello is None:
        return ()
    variants = []
    for info in view.hello.variants:
        # What only the interpreter runs cannot be watched live, but it can be compared.
        why = None if info.interpreted else info.unavailable
        about = _INTERPRETED if info.interpreted else info.summary
        chosen = why is None and (not info.interpreted) != (info.name in view.comparison.toggled)
        variants.append(Candidate(info.name, info.name, about, why, "x" if chosen else ""))
    variants.sort(key=lambda candidate: candidate.unavailable is not None)
    timed = [info for info in view.hello.variants if not (info.unavailable or info.interpreted)]
    return tuple(variants) if len(timed) > 1 else (*variants, *_files(view))


def _files(view: View) -> tuple[Candidate, ...]:
    # The demo pair comes before other recordings.
    demo = _demo(view.shelf.nearby)
    entries = sorted(view.shelf.nearby, key=lambda e: e.place == "bundled" and e not in demo)
    first, chosen, opened = _first_sides(entries), view.comparison.sides, opened_paths(view)
    files = []
    for entry in entries:
        place = entry.place if entry.place in ("open", "bundled") else ""
        about = " · ".join(filter(None, (place, entry.about or entry.kind)))
        key = str(entry.path)
        side = chosen.get((key, *opened), first.get(key, ""))
        files.append(Candidate(key, entry.path.name, about, side=side))
    return tuple(files)


def opened_paths(view: View) -> tuple[str, ...]:
    """The opened files: the sides that the user chose hold beside that."""
    return tuple(str(entry.path) for entry in view.shelf.nearby if entry.place == "open")


def _first_sides(entries: Sequence[FileEntry]) -> dict[str, SideName]:
    """The first two opened files; of a trace that is alone in its folder, the demo pair."""
    opened = [entry for entry in entries if entry.place == "open"]
    alone = all(entry.place in ("open", "bundled") for entry in entries)
    if len(opened) > 1 or (opened and (opened[0].variant or not alone)):
        return {str(entry.path): side for entry, side in zip(opened, _A_AND_B, strict=False)}
    return {str(entry.path): _A_AND_B[DEMO.index(entry.variant)] for entry in _demo(entries)}


def _demo(entries: Sequence[FileEntry]) -> list[FileEntry]:
    """The demo pair: of the model and the GPU of the first one's recording."""
    run = next((entry.run for entry in entries if entry.variant == DEMO[0]), "")
    bundled = (entry for entry in entries if entry.place == "bundled")
    return [entry for entry in bundled if entry.variant in DEMO and entry.run == run]


def next_side(candidates: Sequence[Candidate], key: str) -> SideName:
    """The side that a file is put on next: B, then A, then none; without another on A, A first."""
    now = next((each.side for each in candidates if each.key == key), "")
    if now == "A":
        return ""
    on_a = any(each.side == "A" and each.key != key for each in candidates)
    return "B" if now == "" and on_a else "A"


def sides_to_compare(
    candidates: Sequence[Candidate], cursor: str
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The files of A and B; without any on B, the one at the `cursor`, else the first free one."""
    sides = {side: [each.key for each in candidates if each.side == side] for side in _A_AND_B}
    free = [each.key for each in candidates if not each.side and each.unavailable is None]
    if not sides["B"] and sides["A"]:
        sides["B"] = [cursor] if cursor in free else free[:1]
    return tuple(sides["A"]), tuple(sides["B"])


def rank_files(candidates: Sequence[Candidate], report: RanksReport) -> dict[int, RankFile]:
    """The file of each rank; none if that of any rank is no candidate."""
    of_path = {Path(candidate.key): candidate for candidate in candidates}
    files: dict[int, RankFile] = {}
    for rank in report.ranks:
        candidate = of_path.get(Path(rank.report.source.path))
        if candidate is None:
            return {}
        share = communication_fraction(rank.report)
        files[rank.rank] = RankFile(candidate.key, candidate.name, candidate.side, share)
    return files
