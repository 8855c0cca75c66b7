"""What a worker process reports of the error that ends it."""

import pytest

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.variants.machine.child_process import failure_of


@pytest.mark.parametrize(
    ("error", "code", "text", "traced"),
    [
        (InputError("bad"), 2, "bad", False),
        (MissingRequirement("no GPU"), 3, "no GPU", False),
        (MemoryError(), 3, "out of memory", True),
        (OSError(28, "", "/t/window.json"), 3, "/t/window.json: No space left", True),
        (KeyError("unforeseen"), 70, "KeyError: 'unforeseen'", True),
    ],
)
def test_its_exit_code_is_that_of_the_command(
    error: Exception, code: int, text: str, traced: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = failure_of(error)
    assert (failure.exit_code, failure.fatal) == (code, True)
    assert failure.message.startswith(text)
    assert bool(capsys.readouterr().err) == traced
