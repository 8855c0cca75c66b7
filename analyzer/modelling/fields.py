"""Reads single fields of a config.json; an error says which field of which file, and why."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from decodescope.analyzer.errors import InputError

_LARGEST = 1 << 31
_MAX_SHOWN = 60


@dataclass(frozen=True, slots=True)
class Fields:
    """The fields of one config.json, or of its `text_config`.

    `source` names the file in errors, `defaults` holds what files of the family leave out; a null
    in the file means that there is no value, and no default either.
    """

    source: str
    values: Mapping[str, Any]
    defaults: Mapping[str, Any]

    def get(self, *names: str) -> Any:
        """The first of these that the file has, else the first default, else None."""
        for values in (self.values, self.defaults):
            given = [values[name] for name in names if name in values]
            if given:
                return next((value for value in given if value is not None), None)
        return None

    def named(self, *names: str) -> str:
        """The first of these that has a value, for errors."""
        return next((name for name in names if self.values.get(name) is not None), names[0])

    def count(self, *names: str, least: int = 1) -> int:
        """An integer that must be there."""
        found = self.optional_count(*names, least=least)
        if found is None:
            raise self.error(f"has no {' or '.join(names)}", "give the config.json of a decoder")
        return found

    def optional_count(self, *names: str, least: int = 1) -> int | None:
        """An integer from `least` to 2^31, or None."""
        found = self.get(*names)
        if found is None:
            return None
        if isinstance(found, bool) or not isinstance(found, int) or not least <= found < _LARGEST:
            wanted = f"an integer from {least} to 2^31"
            raise self.error(f"{self.named(*names)} is {shown(found)}, not {wanted}")
        return found

    def flag(self, *names: str) -> bool | None:
        """True, False, or None if the file does not say."""
        found = self.get(*names)
        if found is not None and not isinstance(found, bool):
            raise self.error(f"{self.named(*names)} is {shown(found)}, not true or false")
        return found

    def sequence(self, name: str) -> Sequence[Any] | None:
        """A list, or None."""
        found = self.get(name)
        if found is not None and not isinstance(found, list | tuple):
            raise self.error(f"{name} is {shown(found)}, not a list")
        return found

    def error(self, problem: str, advice: str = "") -> InputError:
        """An error about this file, to raise."""
        advice = advice or "use the file that was saved with the weights"
        return InputError(f"{self.source}: {problem}; {advice}")


def shown(value: object) -> str:
    """A value from a file in an error, cut to a length that fits on a line."""
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."
