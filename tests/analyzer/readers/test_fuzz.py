"""Damaged real traces give a one-line `TraceError` or figures that add up, and nothing else."""

import gzip
import json
import random
from functools import cache
from importlib.resources import as_file, files
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.kineto.reader import read_kineto_bytes
from decodescope.analyzer.readers.reading import load
from decodescope.analyzer.recordings.recording import read_recording
from tests.helpers.fuzzing import Document, analyzed, cut_down, damage_bytes, damage_events
from tests.helpers.kineto_events import RECORDED

FOREIGN = (
    "v100_cuda_graph", "a100_eager", "h100_qwen1.5_0.5b_eager", "mi300x_vllm_decode_graph",
    "h200_llama1b_hf_eager", "cpu_only", "a100_triton_small", "legacy_categories",
)  # fmt: skip
OWN = ("h200-llama-3.2-1b-eager.dsrec", "h200-llama-3.2-1b-compiled.dsrec")
seeds = st.integers(0, 2**64)
quickly = settings(deadline=10_000, suppress_health_check=list(HealthCheck))


@cache
def own_documents() -> tuple[Document, ...]:
    """The CPU capture of the tests, and a window of each bundled recording."""
    windows = [RECORDED]
    for name in OWN:
        with as_file(files("decodescope.analyzer") / "recordings" / name) as path:
            recording = read_recording(path)
            windows.append(gzip.decompress(recording.last_packed_trace()))
    return tuple(json.loads(window) for window in windows)


@cache
def foreign_document(path: Path) -> Document:
    document = json.loads(gzip.decompress(path.read_bytes()))
    return document if isinstance(document, dict) else {"traceEvents": document}


def survives(data: bytes) -> None:
    try:
        trace = read_kineto_bytes(data, "damaged.json")
    except TraceError as error:
        message = str(error)
    else:
        analyzed(trace)
        return
    assert message.startswith("damaged.json: ")
    assert "\n" not in message


@given(seeds)
@settings(quickly, max_examples=150)
def test_events_of_own_traces(seed: int) -> None:
    rng = random.Random(seed)
    survives(damage_events(cut_down(rng.choice(own_documents()), rng), rng))


@given(seeds)
@settings(quickly, max_examples=80)
def test_bytes_of_own_traces(seed: int) -> None:
    rng = random.Random(seed)
    data = json.dumps(cut_down(rng.choice(own_documents()), rng)).encode()
    if rng.random() < 0.3:
        data = gzip.compress(data, 1)
    survives(damage_bytes(data, rng))


@given(seeds)
@settings(quickly, max_examples=80)
def test_foreign_traces(foreign_traces: Path, seed: int) -> None:
    rng = random.Random(seed)
    document = foreign_document(foreign_traces / f"{rng.choice(FOREIGN)}.json.gz")
    part = cut_down(document, rng)
    survives(damage_events(part, rng) if seed % 2 else damage_bytes(json.dumps(part).encode(), rng))


@pytest.fixture(scope="module")
def short_recording(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The beginning of a bundled recording, with its first window."""
    with as_file(files("decodescope.analyzer") / "recordings" / OWN[1]) as path:
        recording = read_recording(path)
        following = [frame.offset for frame in recording.frames]
        end = next(offset for offset in following if offset > recording.windows[0].offset)
        return path.read_bytes()[:end]


@given(seeds)
@settings(quickly, max_examples=60)
def test_recordings(
    short_recording: bytes, tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "damaged.dsrec"
    path.write_bytes(damage_bytes(short_recording, random.Random(seed)))
    try:
        trace = load(path)
    except TraceError as error:
        message = str(error)
    else:
        analyzed(trace)
        return
    assert "\n" not in message
