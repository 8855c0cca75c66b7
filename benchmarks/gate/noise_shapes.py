"""How often the interval over traces is wrong, and what it finds, for simulated noise of any shape.

Runs differ by a shape of noise with a standard deviation. The two sides are the same, or the second
is slower by 3 %.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from decodescope.analyzer.comparing.step_interval import step_ratio

DRAWS = 4000
SLOWER_PERCENT = 3
NOISE_PERCENTS = (0.5, 1.0, 1.25, 1.5)
SIDES = ((5, 5), (7, 7), (3, 3), (20, 5), (20, 1))
_OUTLIER = math.log(1.5)
_STEP_NS = 10_000_000

_Floats = npt.NDArray[np.float64]
# Deviations of n runs of a side, in their order, with a standard deviation of about 1.
_Shape = Callable[[np.random.Generator, int], _Floats]


class Simulated(msgspec.Struct, frozen=True):
    """Shares of `DRAWS` draws in which the second side was found slower: `false_alarms` of equal
    sides, `found` of one that is slower by 3 %. `traces` are those of each side."""

    shape: str
    noise_percent: float
    traces: tuple[int, int]
    false_alarms: float
    found: float


def _slowdowns(generator: np.random.Generator, runs: int) -> _Floats:
    """Skewed: most runs are near the fastest, a few are slow."""
    drawn = generator.lognormal(0, 1, runs)
    return np.asarray((drawn - math.exp(0.5)) / math.sqrt((math.e - 1) * math.e))


def _two_clocks(generator: np.random.Generator, runs: int) -> _Floats:
    high = np.where(generator.random(runs) < 0.5, 1.0, -1.0)
    return np.asarray(0.98 * high + generator.normal(0, 0.2, runs))


def _warming(generator: np.random.Generator, runs: int) -> _Floats:
    """Each run of a side is slower than the one before."""
    ramp = np.linspace(-1, 1, runs) if runs > 1 else np.zeros(1)
    return np.asarray(1.5 * ramp + generator.normal(0, 0.5, runs))


SHAPES: Mapping[str, _Shape] = {
    "normal": lambda generator, runs: generator.normal(0, 1, runs),
    "slow runs (lognormal)": _slowdowns,
    "heavy tails (t, 3 degrees)": lambda generator, runs: (
        generator.standard_t(3, runs) / math.sqrt(3)
    ),
    "two clocks": _two_clocks,
    "warming": _warming,
}


@dataclass(frozen=True, slots=True)
class OddRuns:
    """Normal noise, and beside it: `scales` of the noise of each side, sides with one run half as
    long again, and the share of all runs that are."""

    scales: tuple[float, float] = (1.0, 1.0)
    outliers: tuple[int, int] = (0, 0)
    share: float = 0.0


ODD_RUNS: Mapping[str, OddRuns] = {
    "one run of the first side x1.5": OddRuns(outliers=(1, 0)),
    "one run of the second side x1.5": OddRuns(outliers=(0, 1)),
    "one run in ten x1.5": OddRuns(share=0.1),
    "the first side a third as noisy": OddRuns(scales=(1 / 3, 1.0)),
}


def simulated(shape: str, noise_percent: float, traces: tuple[int, int]) -> Simulated:
    """The figures of one shape of noise; the same at each call."""
    generator = np.random.default_rng(traces[0] * 100 + traces[1])
    draw, odd = SHAPES.get(shape, SHAPES["normal"]), ODD_RUNS.get(shape, OddRuns())
    sides = [
        np.array([draw(generator, runs) for _ in range(DRAWS)]) * scale * noise_percent / 100
        for runs, scale in zip(traces, odd.scales, strict=True)
    ]
    for logs, outliers in zip(sides, odd.outliers, strict=True):
        logs[:, :outliers] += _OUTLIER
        logs += _OUTLIER * (generator.random(logs.shape) < odd.share)
    base, other = sides
    return Simulated(
        shape,
        noise_percent,
        traces,
        _found(base, other),
        _found(base, other + math.log(1 + SLOWER_PERCENT / 100)),
    )


def _found(base: _Floats, other: _Floats) -> float:
    """The share of draws [draws, runs] in which the other side is shown slower."""
    return sum(map(_is_slower, base, other)) / len(base)


def _is_slower(base: _Floats, other: _Floats) -> bool:
    times = [np.exp(logs) * _STEP_NS for logs in (base, other)]
    medians = [float(np.sort(side)[(len(side) - 1) // 2]) for side in times]
    found = step_ratio(
        medians[1] / medians[0], *(side.astype(int)[:, None].tolist() for side in times)
    )
    return found is not None and found.interval().low > 1


def all_simulated() -> list[Simulated]:
    """Normal noise for each size of sides, and the other shapes for five traces a side."""
    found = [simulated("normal", percent, traces) for traces in SIDES for percent in NOISE_PERCENTS]
    others = [shape for shape in (*SHAPES, *ODD_RUNS) if shape != "normal"]
    return found + [
        simulated(shape, percent, SIDES[0]) for shape in others for percent in (1.0, 1.5)
    ]
