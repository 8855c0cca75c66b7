"""One contract for calls that refuse their operands: a `ValueError` that says what is wrong."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest

Call = Callable[[], object]


def refuses(cases: Iterable[tuple[Call, str]]) -> Any:
    """The test that each call of `cases` raises a `ValueError` that matches its pattern."""

    @pytest.mark.parametrize(("call", "complaint"), list(cases))
    def test(call: Call, complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            call()

    return test
