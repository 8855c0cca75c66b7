"""The state that the tools share: the places, the traces that were opened, and what is allowed."""

import os
from collections import OrderedDict
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from decodescope.analyzer.errors import InputError
from decodescope.cli.given import GivenOptions
from decodescope.cli.mcp.answers import NAME_BYTES, cut_text
from decodescope.cli.mcp.places import AllowedPlaces

if TYPE_CHECKING:
    from decodescope.analyzer.reports.analysis import Analysis

_MOST_KEPT = 4


class ToolHost:
    """Keeps the analyses of the last few traces in memory, each until its file changes, and the
    facts that `open` was given about a file. Tools use it one at a time."""

    def __init__(self, folders: Sequence[Path], *, allow_write: bool, allow_run: bool) -> None:
        self.places = AllowedPlaces(folders)
        self._allow_write, self._allow_run = allow_write, allow_run
        self._facts: dict[Path, GivenOptions] = {}
        self._kept: OrderedDict[tuple[object, ...], Analysis] = OrderedDict()

    def analysis(self, text: str, facts: GivenOptions | None = None) -> "Analysis":
        """The analysis of the trace at a path, with `facts`, which are remembered, or those of the
        last call that had some.

        Raises:
            InputError: there is no such trace below the folders, or a fact cannot be.
        """
        from decodescope import analyzer

        path = self.places.trace(text)
        facts = self._facts.get(path, GivenOptions()) if facts is None else facts
        status = os.stat(path)
        key = (path, status.st_mtime_ns, status.st_size, facts)
        if key not in self._kept:
            self._kept[key] = analyzer.analyze(analyzer.load(path), facts.read())
        self._facts[path] = facts
        self._kept.move_to_end(key)
        while len(self._kept) > _MOST_KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def must_run(self) -> None:
        """Raise unless tools may decode models."""
        if not self._allow_run:
            raise InputError("nothing is decoded here; start decodescope mcp with --allow-run")

    def new_folder(self, text: str) -> Path:
        """As `output`, for a folder that holds nothing yet: no link in it can lead elsewhere."""
        folder = self.output(text)
        if os.path.isdir(folder) and os.listdir(folder):
            raise InputError(f"{cut_text(text, NAME_BYTES)}: is not empty; name a new folder")
        return folder

    def output(self, text: str) -> Path:
        """A path that a tool may write to.

        Raises:
            InputError: it is outside of the folders, or tools may write nothing.
        """
        if not self._allow_write:
            raise InputError("nothing is written here; start decodescope mcp with --allow-write")
        return self.places.inside(text)
