"""The candidates of a comparison: the variants of a live run, or the opened files."""

from dataclasses import dataclass

from decodescope.tui.model.view import View

_INTERPRETED = "Triton's interpreter: tokens and accuracy, no speed"


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant or a file. `unavailable` says why it cannot be compared. `chosen`: it will be."""

    name: str
    about: str
    unavailable: str | None
    chosen: bool


def comparison_candidates(view: View) -> tuple[Candidate, ...]:
    """Those that can be compared come first. Until the user changes it, every variant that is timed
    here is chosen, or the first two files."""
    toggled = view.comparison.toggled
    if view.kind == "trace":
        # The merged ranks after several files are no file.
        files = view.choices[:-1] if len(view.choices) > 1 else view.choices
        return tuple(
            Candidate(choice.name, choice.summary, None, (index < 2) != (choice.name in toggled))
            for index, choice in enumerate(files)
        )
    if view.kind != "live" or view.hello is None:
        return ()
    variants = []
    for info in view.hello.variants:
        # What only the interpreter runs cannot be watched live, but it can be compared.
        why = None if info.interpreted else info.unavailable
        about = _INTERPRETED if info.interpreted else info.summary
        chosen = why is None and (not info.interpreted) != (info.name in toggled)
        variants.append(Candidate(info.name, about, why, chosen))
    return tuple(sorted(variants, key=lambda candidate: candidate.unavailable is not None))


def chosen_names(view: View) -> tuple[str, ...]:
    """The candidates that are chosen; the first is the base."""
    return tuple(candidate.name for candidate in comparison_candidates(view) if candidate.chosen)
