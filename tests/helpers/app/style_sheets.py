"""Every app parses the same style sheets, a tenth of a test's time; these share what one parsed."""

from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet

_parsed: dict[tuple[Any, ...], Any] = {}


def use_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let style sheets be parsed once for the same text and variables."""
    parse = Stylesheet._parse_rules

    def parse_once(self: Any, *values: Any, **named: Any) -> Any:
        key = (values, tuple(named.items()), tuple(self._variables.items()))
        if key not in _parsed:
            _parsed[key] = parse(self, *values, **named)
        return _parsed[key]

    monkeypatch.setattr(Stylesheet, "_parse_rules", parse_once)
