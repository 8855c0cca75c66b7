"""How a command of decodescope ended."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Done:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def error_line(self) -> str:
        """The line that ends a failed command."""
        last = self.err.splitlines()[-1]
        assert last.startswith("decodescope: ")
        return last

    @property
    def only_line(self) -> str:
        """The one line of a command that failed before it printed anything else."""
        assert self.out == ""
        assert len(self.err.splitlines()) == 1, self.err
        return self.error_line


Command = Callable[..., Done]
