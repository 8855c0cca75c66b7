"""The roles that the analyzer finds by the names of a fused step's kernels, against its ranges.

No kernel runs: its launch is recorded instead.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain

import pytest
import torch
from triton.runtime.interpreter import InterpretedFunction

from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.structure.step_structure import roles_in_step
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.fused.operations import step_operations
from tests.helpers import families
from tests.helpers.fused_steps import fused, load_family
from tests.helpers.recorded.decode_ops import layers_of, meaning_of

# The last part of an operation's path, and its role.
_ROLES = {
    r"qkv": "qkv",
    r"qk_norm": "qk_norm",
    r"rope": "rope",
    r"kv_write": "kv_write",
    r"decode_attention": "attention",
    r"o_proj": "o",
    r"router|^gate$": "router",
    r"gate_proj": "gate_up",
    r"^gelu$": "activation",
    r"experts_": "experts",
    r"gate_up": "gate_up",
    r"down_proj": "down",
    r"lm_head": "head",
    r"norm": "norm",
    r"embedding|up_proj": "copy",
}


@contextmanager
def launches_recorded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The names of the kernels launched within it, which do not run."""
    names: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(
            InterpretedFunction, "run", lambda kernel, *_, **__: names.append(kernel.__name__)
        )
        yield names


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("family", families.CONFIGS)
def test_every_kernel_has_the_role_of_its_range(
    family: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = fused(load_family(family, "cpu", torch.bfloat16), DecodeWorkload(batch, 4, 3, "bf16"))
    launched: dict[str, list[tuple[str, str]]] = {}
    for placed in step_operations(step.plan):
        with launches_recorded(monkeypatch) as names:
            placed.operation.run(pdl=False)
        role = next(role for part, role in _ROLES.items() if re.search(part, placed.path[-1]))
        block = next((part for part in placed.path if part.startswith("layer.")), placed.path[1])
        launched.setdefault(block, []).extend((name, role) for name in names)
    before, *layers, behind = launched.values()
    # Two layers are too few to be recognised.
    expected = [*before, *chain(*layers), *chain(*layers), *behind]
    kernels = [name for name, _ in expected]
    meanings = [meaning_of(name) for name in kernels]
    letters = "".join(meaning.letter for meaning in meanings)
    found = roles_in_step(letters, [one.role for one in meanings], layers_of(kernels))
    roles = [ROLES[role] for role in found.tolist()]
    assert list(zip(kernels, roles, strict=True)) == expected
