"""Whose fault an error is, and how a process ended, in words."""

import signal
from importlib.metadata import EntryPoint
from types import ModuleType

import pytest

from decodescope.analyzer.errors import (
    VARIANTS_GROUP,
    InputError,
    InternalError,
    known_error,
    process_end,
)


def module(name: str, **names: object) -> ModuleType:
    """A module whose `call(function)` calls it, and whose `fail()` raises."""
    made = ModuleType(name)
    made.__dict__.update(names)
    exec("def call(function): return function()\ndef fail(): raise TypeError('a b')", vars(made))
    return made


OURS, MINE, LIBRARY = (
    module(name)
    for name in ("decodescope.variants.steps.decode_step", "my_steps.decode", "torch.nn")
)


@pytest.mark.parametrize(
    ("callers", "whose"),
    [
        ((OURS,), "ours"),
        ((OURS, LIBRARY), "ours"),
        ((LIBRARY,), "ours"),
        ((OURS, MINE), "theirs"),
        ((OURS, LIBRARY, MINE, LIBRARY), "theirs"),
        ((OURS, MINE, OURS), "ours"),
        ((OURS, MINE, OURS, LIBRARY), "ours"),
    ],
)
def test_an_error_is_the_innermost_packages(
    callers: tuple[ModuleType, ...], whose: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = EntryPoint("mine", "my_steps.decode:VARIANT", VARIANTS_GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [entry])
    run = callers[-1].fail
    for caller in reversed(callers[:-1]):
        run = lambda caller=caller, run=run: caller.call(run)  # noqa: E731
    with pytest.raises(TypeError) as caught:
        run()
    known = known_error(caught.value)
    assert type(known) is (InputError if whose == "theirs" else InternalError)
    expected = "my_steps, a package with a variant of its own, failed: TypeError: a b; --debug"
    assert str(known).startswith(expected if whose == "theirs" else "TypeError: a b")


@pytest.mark.parametrize(
    ("exit_code", "text"),
    [
        (0, "ended with exit code 0"),
        (3, "ended with exit code 3"),
        (-signal.SIGKILL, "was killed by SIGKILL"),
        (-1000, "was killed by signal 1000"),
    ],
)
def test_a_process_end_names_its_exit_code_or_signal(exit_code: int, text: str) -> None:
    assert process_end(exit_code) == text
