"""What a host range is called in a path."""

import re

from decodescope.analyzer.timing.steps import step_kind

# torch.compile opens this around every call of generated code: it says nothing about the model.
_NOISE = re.compile(r"## Call CompiledFxGraph .*##$")


def path_part(name: str) -> str | None:
    """A range's name in paths: step markers lose their number; None of a range left out."""
    return None if _NOISE.match(name) else step_kind(name)
