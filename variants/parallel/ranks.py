"""The place of a process among those that decode one model together."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Ranks:
    """The place of this process among the `size` ranks that decode one model together."""

    rank: int = 0
    size: int = 1

    @property
    def alone(self) -> bool:
        return self.size == 1


ALONE = Ranks()
