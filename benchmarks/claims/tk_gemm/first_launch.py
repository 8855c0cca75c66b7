"""What a launch of a Triton kernel costs the host: the first ones, later ones, and kept ones."""

from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from time import perf_counter_ns

import triton

from decodescope.analyzer.io.work_folders import WorkFolder
from decodescope.kernels.host.operation import Launch
from decodescope.variants.tuning.report import RoundSpread

ROUNDS = 3
_CALLS = 50


@dataclass(frozen=True, slots=True)
class LaunchCosts:
    """Host time of a launch call, without the kernel's own time.

    `compiling_ns`: the first launch with an empty cache of compiled kernels. `loading_ns`: the
    first one of a process that finds the kernel compiled on disk. `later_ns`: the kernel is known,
    and Triton looks at each argument. `kept_ns`: a launch that was kept is called again.
    """

    compiling_ns: RoundSpread
    loading_ns: RoundSpread
    later_ns: RoundSpread
    kept_ns: RoundSpread


def launch_costs(
    launch: Callable[[], Launch],
    forget: Callable[[], object],
    synchronize: Callable[[], object],
    now_ns: Callable[[], int] = perf_counter_ns,
) -> LaunchCosts:
    """Measure `launch` in `ROUNDS` rounds, each with an empty cache folder of its own.

    `forget` makes the process forget the compiled kernel; `synchronize` waits for the GPU, so that
    no call waits for room in its queue.
    """

    def taken_ns(call: Callable[[], object]) -> float:
        synchronize()
        began_ns = now_ns()
        call()
        return float(now_ns() - began_ns)

    def usual_ns(call: Callable[[], object]) -> float:
        return median(taken_ns(call) for _ in range(_CALLS))

    rounds = []
    with triton.knobs.cache.scope():
        for _ in range(ROUNDS):
            with WorkFolder() as folder:
                triton.knobs.cache.dir = str(folder)
                forget()
                compiling_ns = taken_ns(launch)
                forget()
                loading_ns = taken_ns(launch)
                rounds.append((compiling_ns, loading_ns, usual_ns(launch), usual_ns(launch())))
    return LaunchCosts(*(RoundSpread.of(column) for column in zip(*rounds, strict=True)))
