"""The analysed windows of a source, and the files that are still to be analysed."""

from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path

from decodescope.analyzer.reports.user_facts import Given
from decodescope.tui.model.view import Window


@dataclass(frozen=True, slots=True)
class Job:
    """Files to analyse for the choice at `index`, announced at monotonic second `at`: one file, or
    several as the ranks of one run. It belongs to the `era` between two jumps of a replay."""

    paths: tuple[Path, ...]
    index: int
    at: float
    era: int = 0


@dataclass(slots=True, eq=False)
class Windows:
    """The latest window of each choice, why others cannot be read, and the latest job: it is due
    until it is taken, and expected until it is answered. `era` counts the jumps of a replay."""

    era: int = 0
    unreadable: dict[int, str] = field(default_factory=dict)
    _latest: dict[int, Window] = field(default_factory=dict)
    _since: float = 0.0
    _due: Job | None = None
    _expected: Job | None = None

    @property
    def analysing(self) -> bool:
        return self._expected is not None

    def of(self, index: int) -> Window | None:
        return self._latest.get(index)

    def expect(self, paths: tuple[Path, ...], index: int, at: float) -> None:
        self._due = self._expected = Job(paths, index, at, self.era)

    def take(self) -> Job | None:
        job, self._due = self._due, None
        return job

    def name_model(self, given: Given) -> None:
        for index, window in self._latest.items():
            self._latest[index] = window.with_model(given)

    def answered(self, job: Job) -> None:
        if job is self._expected:
            self._expected = None

    def keep(self, job: Job, window: Window) -> bool:
        """Keep the window of `job`; False if it is of another era, or older than what is kept."""
        kept = self.of(job.index)
        if job.era != self.era or (kept is not None and kept.at > window.at):
            return False
        self._latest[job.index] = window
        return True

    def forget_all_but(self, indexes: Collection[int]) -> None:
        """Forget the windows of other choices: they are analysed again when they are chosen."""
        self._latest = {index: self._latest[index] for index in indexes if index in self._latest}

    def begin(self, at: float) -> None:
        """A run begins at second `at`: its choices have no windows yet."""
        self._latest.clear()
        self._since = at

    def jump(self) -> dict[int, Window]:
        """A replay jumps: the windows so far, for `restore`."""
        kept, self._latest = self._latest, {}
        self.era += 1
        self._due = self._expected = None
        return kept

    def restore(self, kept: dict[int, Window], now: float, current: int) -> None:
        """After a jump to second `now`, use those of the windows of before that the run had by
        then; the one of the choice at `current` need not be analysed again."""
        self._latest = {
            index: window for index, window in kept.items() if self._since <= window.at <= now
        }
        window = self.of(current)
        if window is not None and self._due is not None and self._due.paths == (window.path,):
            self._due = self._expected = None
