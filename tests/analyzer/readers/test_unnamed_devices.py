"""AMD devices that a trace lists without a name."""

import gzip
import json
from pathlib import Path

import pytest

from decodescope.analyzer import load
from decodescope.analyzer.readers.kineto.devices import name_by_properties
from decodescope.analyzer.readers.kineto.kineto_reader import read_kineto_bytes
from decodescope.analyzer.roofline.peaks import datasheet_peak

# As ROCm's profiler lists an MI300X.
MI300X = {
    "id": 0,
    "name": "",
    "totalGlobalMem": 206141652992,
    "computeMajor": 9,
    "computeMinor": 4,
    "warpSize": 64,
    "numSms": 304,
}


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "AMD Instinct MI300X"),
        ({"totalGlobalMem": 256 * 2**30 - 2**24}, "AMD Instinct MI325X"),
        ({"numSms": 228, "totalGlobalMem": 128 * 2**30}, "AMD Instinct MI300A"),
        ({"computeMinor": 0, "numSms": 110, "totalGlobalMem": 64 * 2**30}, "AMD Instinct MI250X"),
        # A partition of an MI300X; MI308X; the two of the MI350 series; MI210 and MI250.
        ({"numSms": 38}, ""),
        ({"numSms": 80}, ""),
        ({"computeMinor": 5, "numSms": 256, "totalGlobalMem": 288 * 2**30}, ""),
        ({"computeMinor": 0, "numSms": 104, "totalGlobalMem": 64 * 2**30}, ""),
        ({"warpSize": 32}, ""),
        ({"totalGlobalMem": 300 * 2**30}, ""),
        ({"totalGlobalMem": "206141652992"}, ""),
        ({"numSms": [304]}, ""),
        ({"numSms": None}, ""),
    ],
)
def test_names(changes: dict[str, object], name: str) -> None:
    assert name_by_properties({**MI300X, **changes}) == name
    assert (datasheet_peak(name) is None) == (name == "")


def test_a_given_name_stays() -> None:
    listed = [{**MI300X, "name": "gfx942"}, {**MI300X, "id": 1}, {"id": 2}]
    text = json.dumps({"traceEvents": [], "deviceProperties": listed})
    names = read_kineto_bytes(text.encode(), "t.json").device_names
    assert names == {0: "gfx942", 1: "AMD Instinct MI300X", 2: ""}


def test_a_trace_of_an_engine(foreign_traces: Path) -> None:
    path = foreign_traces / "mi300x_vllm_decode_graph.json.gz"
    if not path.exists():
        pytest.skip(f"needs the foreign trace {path}")
    listed = json.loads(gzip.decompress(path.read_bytes()))["deviceProperties"]
    assert {one["name"] for one in listed} == {""}
    names = load(path).device_names
    assert set(names.values()) == {"AMD Instinct MI300X"}
