"""The family of each op, by its kind and its name."""

from collections.abc import Sequence

import numpy as np

from decodescope.analyzer.names.kinds import FAMILIES
from decodescope.analyzer.names.rule_files import kernel_meaning
from decodescope.analyzer.timing.step_timeline import StepTimeline
from decodescope.analyzer.trace import MEMCPY, MEMSET, GpuOps, Int8s

_NUMBER = {family: number for number, family in enumerate(FAMILIES)}


def op_families(timeline: StepTimeline) -> Int8s:
    """The family of each op of a step, an index in `FAMILIES`: int8 [ops]."""
    return families_of(timeline.names, timeline.ops)


def families_of(names: Sequence[str], ops: GpuOps) -> Int8s:
    """The family of each op, an index in `FAMILIES`: int8 [ops]. Copies and fills of the driver are
    copies whatever their names say, unless these say that they communicate."""
    used, place = np.unique(ops.name, return_inverse=True)
    of_name = [_NUMBER[kernel_meaning(names[name]).family] for name in used]
    families = np.array(of_name, dtype=np.int8)[place]
    local = np.isin(ops.kind, (MEMCPY, MEMSET)) & (families != _NUMBER["communication"])
    families[local] = _NUMBER["copy"]
    return families
