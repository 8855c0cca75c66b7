"""Decode steps that run on any device, by name: the tests of every step run on each."""

from collections.abc import Callable
from typing import Any

from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.compiled_step import StaticStep
from decodescope.variants.steps.eager_step import EagerStep

Build = Callable[[Any, DecodeWorkload], Any]


def static(loaded: Any, workload: DecodeWorkload) -> StaticStep:
    """As the compiled variant, without a compiler."""
    return StaticStep(loaded, workload, lambda forward: forward)


BUILDS: dict[str, Build] = {"eager": EagerStep, "static": static}
