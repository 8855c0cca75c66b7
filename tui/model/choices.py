"""What a number key selects: the variants of a run, or the opened files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from decodescope.analyzer.protocol.messages import Hello
from decodescope.tui.link.base import Playback
from decodescope.tui.model.view import Choice

_ALL_RANKS = Choice("all ranks", "the files as ranks of one run, on one clock")
_NOT_RECORDED = "not recorded"


def variants_of(hello: Hello, playback: Playback | None) -> tuple[Choice, ...]:
    """The variants that a worker has; of a recording, those that it holds can be chosen."""
    choices = tuple(Choice(one.name, one.summary, one.unavailable) for one in hello.variants)
    if playback is None:
        return choices
    held = {mark.variant for mark in playback.marks}
    return tuple(
        replace(choice, unavailable=None if choice.name in held else _NOT_RECORDED)
        for choice in choices
    )


def with_running(choices: tuple[Choice, ...], variant: str) -> tuple[Choice, ...]:
    """The choices with `variant`, which runs: of a recording that grows it was not known before."""
    if variant not in [choice.name for choice in choices]:
        return (*choices, Choice(variant, ""))
    return tuple(
        replace(choice, unavailable=None)
        if (choice.name, choice.unavailable) == (variant, _NOT_RECORDED)
        else choice
        for choice in choices
    )


def files_of(paths: Sequence[Path]) -> tuple[Choice, ...]:
    """The opened files, and after several all of them together."""
    files = tuple(Choice(path.name, str(path.parent)) for path in paths)
    return (*files, _ALL_RANKS) if len(files) > 1 else files
