"""Gates: damaged baselines and traces, odd limits, and every output."""

import random

import msgspec

from decodescope.analyzer.schema.gate_report import BASELINE_VERSION, Baseline, Sample, Subject
from tests.fuzzing.case import ODD_NUMBERS, ODD_TEXTS, Case
from tests.fuzzing.damage import as_json, damage_bytes, damage_json
from tests.fuzzing.planted import planted_trace
from tests.fuzzing.traces import window

_FOLDER = "kept"
_PARTS = ("matmul", "host_wait", "attention")
_OUTPUTS = (("--json",), ("--github",), ("--markdown", "out.md"), ("--junit", "out.xml"))
_CONDITIONS = ("kind", "model", "batch", "device", "driver")


def gate_case(rng: random.Random) -> Case:
    """A trace against a baseline that may be damaged; or the baseline is shown."""
    files = {"a.json": _trace(rng), f"{_FOLDER}/main.json": _baseline(rng)}
    where = ("--folder", _FOLDER)
    if rng.random() < 0.2:
        return Case(("baseline", "show", "main", *where), files, (_FOLDER,))
    if rng.random() < 0.1:
        return Case(("baseline", "save", "new", "a.json", *where), files, (_FOLDER,))
    output = rng.choice(_OUTPUTS)
    limits = tuple(text for _ in range(rng.choice((0, 1, 2))) for text in ("--allow", _limit(rng)))
    accepted = tuple(text for name in _CONDITIONS for text in ("--accept", name))
    strict = rng.choice(((), ("--strict",)))
    arguments = ("gate", "--baseline", "main", "a.json", *where, *limits, *accepted, *strict)
    return Case((*arguments, *output), files, (_FOLDER, *output[1:]))


def _trace(rng: random.Random) -> bytes:
    return as_json(window(rng), rng) if rng.random() < 0.2 else planted_trace(rng)


def _limit(rng: random.Random) -> str:
    figure = str(rng.choice((1, 5.5, 200, *ODD_NUMBERS)))
    part = rng.choice((*_PARTS, *ODD_TEXTS)).replace("\0", "")
    return rng.choice((figure, f"{part}={figure}"))


def _baseline(rng: random.Random) -> bytes:
    samples = tuple(_sample(rng) for _ in range(rng.choice((1, 1, 3))))
    subjects = (Subject("step", {"kind": "decode", "batch": "1"}, samples),)
    data = msgspec.json.encode(Baseline(BASELINE_VERSION, "main", "2026-11-27", subjects))
    if rng.random() < 0.4:
        data = damage_json(data, rng)
    return damage_bytes(data, rng) if rng.random() < 0.2 else data


def _sample(rng: random.Random) -> Sample:
    steps = rng.choice((1, 2, 5))
    times = [tuple(rng.choice((0, 1, 10**6, 10**15)) for _ in range(steps)) for _ in _PARTS]
    return Sample("a.json", times[0], dict(zip(_PARTS, times, strict=True)))
