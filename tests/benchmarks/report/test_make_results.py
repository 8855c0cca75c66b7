"""The documents that are written from the records; `make results` writes them again."""

import copy
import re
from pathlib import Path
from xml.etree import ElementTree

import msgspec
import pytest

from benchmarks.claims.report import ClaimsReport
from benchmarks.counters.counter_check import SLOWER
from benchmarks.counters.counter_figures import Quantiles, Reason, VariantFigures
from benchmarks.gate.gate_accuracy import Change, Kind
from benchmarks.gate.noise_shapes import Simulated
from benchmarks.report.claims import read_reports
from benchmarks.report.comparisons import variant
from benchmarks.report.documents import COMMAND, PLOTS, ROOT, documents, with_results
from benchmarks.report.records import Record, origins, read_records


@pytest.fixture(scope="module")
def records() -> dict[str, Record]:
    return read_records()


@pytest.fixture(scope="module")
def reports() -> dict[str, ClaimsReport]:
    return read_reports()


@pytest.fixture(scope="module")
def written(records, reports) -> dict[str, str]:
    return {str(path.relative_to(ROOT)): text for path, text in documents(records, reports).items()}


def test_the_committed_documents_are_those_of_the_records(written):
    stale = [
        name
        for name, text in written.items()
        if not (ROOT / name).exists() or (ROOT / name).read_text(encoding="utf-8") != text
    ]
    assert not stale, f"differ from the records; run: {COMMAND}"


def test_every_committed_plot_is_drawn_and_shown(written):
    drawn = {name for name in written if name.endswith(".svg")}
    assert {f"docs/plots/{path.name}" for path in PLOTS.iterdir()} == drawn
    pages = [text for name, text in written.items() if name.startswith("docs/results")]
    shown = re.findall(r"\]\((?:\.\./)?(plots/[^)]+)\)", "".join(pages))
    assert sorted(f"docs/{name}" for name in shown) == sorted(drawn)


def test_every_page_below_results_is_written_from_the_records(written):
    committed = {f"docs/results/{path.name}" for path in (ROOT / "docs/results").iterdir()}
    assert committed == {name for name in written if name.startswith("docs/results/")}


def test_a_plot_is_one_file_for_light_and_dark_that_needs_no_network(written):
    for name in (name for name in written if name.endswith(".svg")):
        root = ElementTree.fromstring(written[name])
        style = root.findtext("{http://www.w3.org/2000/svg}style", "")
        assert "prefers-color-scheme: dark" in style, name
        assert re.findall(r"https?://[^\s\"')]*", written[name]) == ["http://www.w3.org/2000/svg"]


def test_every_record_is_listed_with_its_date_and_commit(written, records):
    page = written["docs/results/records.md"]
    for name, record in records.items():
        date = record["environment"]["date"][:10]
        assert re.search(rf"`{re.escape(name)}`[^|]* \| {date} \| \S", page), name


@pytest.mark.parametrize("table", ["docs/results.md", "README.md", "docs/plots/variants.svg"])
def test_another_figure_in_a_record_is_another_page(table, written, records, reports):
    changed = copy.deepcopy(records)
    rates = changed["compare-llama-3.1-8b-random"]["variants"]
    next(one for one in rates if one["variant"] == "fused+graph")["mean"] *= 1.01
    again = {
        str(path.relative_to(ROOT)): text for path, text in documents(changed, reports).items()
    }
    assert {name for name in written if again[name] != written[name]} >= {table}


def test_a_missing_figure_is_an_error_and_not_an_empty_cell(records, reports):
    changed = copy.deepcopy(records)
    del changed["app-costs"]["median"]["first_paint_s"]
    with pytest.raises(Exception, match="first_paint_s"):
        documents(changed, reports)


def test_only_the_block_of_the_readme_is_written(records):
    readme = "before\n<!-- make results -->\nold\n<!-- end of make results -->\nafter\n"
    text = with_results(readme, records)
    assert text.startswith("before\n<!-- make results -->\n")
    assert text.endswith("<!-- end of make results -->\nafter\n")
    assert "old" not in text
    assert variant(records["compare-llama-3.1-8b-random"], "compiled").mean in text
    with pytest.raises(SystemExit, match=r"README\.md"):
        with_results("no block", records)


def rates(name: str, rounds: list[float], low: float, high: float) -> dict[str, object]:
    mean = sum(rounds) / len(rounds)
    interval = {"low": low, "high": high, "confidence": 0.95}
    accuracy = {"kl": 0.0}
    return {
        "variant": name,
        "tokens_per_s": rounds,
        "mean": mean,
        "interval": interval,
        "accuracy": accuracy,
    }


def comparison(*variants: dict[str, object]) -> dict[str, object]:
    run = {
        "step_ns": {"p50": 1_000_000},
        "launch_calls_per_step": 1.0,
        "gpu_ops_per_step": 2.0,
        "bandwidth": {"mbu": 0.5, "measured_peak_bytes_per_s": 4e12},
        "answer": {"bound": "memory"},
        "bytes_per_step": 2_000_000_000,
    }
    speed = {"value": 2.0, "interval": {"low": 1.9, "high": 2.1}}
    first = variants[0]["variant"]
    return {
        "variants": list(variants),
        "runs": [run | {"variant": one["variant"]} for one in variants],
        "windows": {one["variant"]: {"window_ns": 200, "idle_ns": 50} for one in variants},
        "pairs": [{"base": first, "other": one["variant"], "speed": speed} for one in variants[1:]],
    }


def test_a_wide_interval_is_replaced_by_the_rounds():
    narrow = rates("a", [100.0, 101.0, 102.0], 98.0, 104.0)
    wide = rates("b", [100.0, 150.0, 200.0], 40.0, 260.0)
    record = comparison(narrow, wide)
    assert variant(record, "a").rate == "101 (98.0\u2013104)"
    assert variant(record, "b").rate == "150 (rounds: 100, 150, 200)"
    assert variant(record, "b").ratio == "2.000 (1.900\u20132.100)"
    assert variant(record, "a").idle == "25.0 %"


def test_records_of_one_machine_and_its_versions_are_together_by_date():
    gpu = {"gpu": "NVIDIA H200", "torch": "2.11.0", "commit": "0123456789ab+"}
    cpu = {"gpu": None, "cpu": "a CPU", "cpu_cores": 2, "commit": None}
    found = origins(
        {
            "late": gpu | {"date": "2026-02-02T10:00:00+00:00"},
            "cpu": cpu | {"date": "2026-01-01T00:00:00+00:00"},
            "early": gpu | {"date": "2026-02-01T10:00:00+00:00"},
            "before": gpu | {"date": "2026-02-01T09:00:00+00:00"},
            "other": gpu | {"date": "2026-02-01T10:00:00+00:00", "torch": "2.12.0"},
        }
    )
    assert [origin.machine for origin in found] == [
        "NVIDIA H200, torch 2.11.0",
        "NVIDIA H200, torch 2.12.0",
        "a CPU, 2 cores",
    ]
    assert list(found[0].names.items()) == [
        (("2026-02-01", "012345678+"), ["before", "early"]),
        (("2026-02-02", "012345678+"), ["late"]),
    ]
    assert found[2].names == {("2026-01-01", "not recorded"): ["cpu"]}


def _page(found: dict[Path, str], name: str) -> str:
    """The page of that name below docs/results."""
    return found[ROOT / "docs" / "results" / f"{name}.md"]


def quantiles(value: float) -> Quantiles:
    return Quantiles(value * 0.9, value, value * 1.1)


def test_a_record_of_the_gate_is_a_section_and_without_one_there_is_none(records, reports):
    page = _page(documents(records, reports), "comparisons")
    assert ("gate-accuracy" in records) == ("## Gates" in page)
    changes = (Change(0, 0.01, 0.04, 0.95), Change(3, 0.985, 0.0, 0.015))
    kind = Kind(
        "eager", {"model": "tiny"}, 3, 20, (1_600_000, 1_000_000, 1_500_000), 0.456, 1.2, changes
    )
    simulated = [
        Simulated(shape, noise, traces, alarms, found)
        for shape, noise, traces, alarms, found in (
            ("normal", 0.5, (5, 7), 0.02, 1.0),
            ("normal", 1.25, (5, 7), 0.02, 0.9),
            ("clocks", 0.5, (5, 7), 0.024, 0.8),
            ("normal", 0.5, (2, 2), 0.5, 0.3),
            ("normal", 1.25, (2, 2), 0.5, 0.1),
        )
    ]
    record = {
        "draws": 321,
        "traces_a_side": 5,
        "kinds": [kind],
        "simulated": simulated,
        "environment": records["app-costs"]["environment"],
    }
    planted = {**records, "gate-accuracy": msgspec.json.decode(msgspec.json.encode(record))}
    page = _page(documents(planted, reports), "comparisons")
    assert "321 [gates](../gates.md) of 5 traces a side" in page
    assert "| traces | step | noise | +0 % | +3 % |\n|---|---|---|---|---|\n" in page
    assert "| 3 of eager | 1.50 ms | 0.46 % | 1.0 | 98.5 |\n" in page
    assert "noise of 2 shapes, 2.4 % at most" in page
    assert "| traces a side | 0.5 % | 1.25 % |\n|---|---|---|\n" in page
    assert "| 5, 7 | 100.0 | 90.0 |\n| 2, 2 | 30.0 | 10.0 |\n" in page


def test_a_record_of_the_counters_is_a_section_and_without_one_there_is_none(records, reports):
    page = _page(documents(records, reports), "kernels")
    assert ("hardware-counters" in records) == ("gpu__time_duration" in page)
    counted = {
        **dict.fromkeys(VariantFigures.__struct_fields__),
        "measured_as": "fused-pdl",
        "kernels": 82,
        "trace_ns": 7e5,
        "ncu_ns": 7.2e5,
        "ncu_less_offset_ns": 7.118e5,
        "trace_over_ncu": quantiles(0.98),
        "trace_over_ncu_less_offset": quantiles(1.0),
        "within": 0.75,
        "within_less_offset": 0.5,
        "reasons": (Reason("interval", 20, 0.25, 2e4), Reason(SLOWER, 2, 0.06, 9e3)),
        "claimed_bytes": 2_470_000_000,
        "dram_bytes": 2.4e9,
        "dram_read_bytes": 2.3e9,
        "byte_reasons": (Reason("L2", 80, 1.0, -7e7),),
        "joined": {
            "names": ["gemv", "add"],
            "rows": [
                [1, 80.0, 80.4, "steps"],
                [0, 100.0, 106.5, SLOWER],
                [0, 50.0, 52.0, SLOWER],
            ],
        },
    }
    assert list(counted) == list(VariantFigures.__struct_fields__)
    # Another process, in which the second launch took 8 % more; of "add" it has two.
    rows = [[0, 100.0, 0.0, "steps"], [0, 54.0, 0.0, "steps"], *[[1, 20.0, 0.0, "steps"]] * 2]
    variants = [
        msgspec.to_builtins(counted),
        msgspec.to_builtins(
            {
                **counted,
                "variant": "compiled",
                "joined": {"names": ["gemv", "add"], "rows": rows},
            }
        ),
        {"measured_as": "eager", "refused": "other | kernels"},
    ]
    environment = records["batch-scaling"]["environment"]
    record = {
        "model": "llama-3.2-1b@random",
        "dtype": "bf16",
        "position": 192,
        "ncu_version": "2025.3",
        "columns": ["name", "trace_ns", "ncu_busy_ns", "why"],
        "variants": variants,
        "environment": environment,
    }
    found = documents(records | {"hardware-counters": record}, reports)
    page = _page(found, "kernels")
    section = page.partition("## Beside the hardware's counters")[2].partition("\n## ")[0]
    ratios = "0.980 (0.882, 1.078) | 1.000 (0.900, 1.100)"
    shares = "75.0 % | 50.0 % | 2.47 GB | 2.40 GB | 2.30 GB"
    words = " ".join(section.split())
    assert "DRAM was read for 93.1 % to 93.1 % of the bytes that we claim" in words
    assert "longer by 100 ns to 100 ns for a kernel that does nothing" in words
    assert '2 of 7 kernels, 6.0 % to 6.0 % of the traced time, are "slower under ncu"' in words
    assert "than the kernel took in the trace, by 6.5 % at most. The two sides" in words
    assert "at the same place of the model differ by 8.0 % at most ([" in words
    assert f"| `fused-pdl` | 82 | 700 µs | 720 µs | 712 µs | {ratios} | {shares} |" in section
    assert "| `eager` | other \\| kernels |" in section
    assert "| `fused-pdl` | bytes | L2 | 80 | 100.0 % | -70.0 MB |" in section


def test_a_comparison_of_fusions_is_a_table_of_differences_to_its_first(records, reports):
    fusions = copy.deepcopy(records["compare-llama-3.2-1b-random"])
    found = documents(records | {"compare-llama-3.2-1b-fusions": fusions}, reports)
    page = _page(found, "comparisons")
    table = page.partition("What each fusion buys")[2]
    (graph,) = (line for line in table.splitlines()[:12] if "`fused+graph`" in line)
    # 1,524 to 687 µs, 3 to 1 launch calls, 311 to 82 ops.
    assert re.search(r"\| 687 µs \| -837 \| -2 \| -229 \| -16\d \| 0\.\d+ \(.*\) \|$", graph), graph


_POINT = {
    "tokens_per_s": {"median": 275.2, "min": 274.1, "max": 276.4},
    "step_p50_ns": {"median": 3_641_000.0},
    "bytes_per_step": 15_000_000_000,
}


@pytest.mark.parametrize("over", ["context", "model"])
def test_a_record_of_scaling_is_a_table_and_a_plot(over, records, reports):
    batches = records["batch-scaling"]
    values = {"context": [128, 32768], "model": ["qwen2.5-0.5b@random", "llama-3.1-8b@random"]}[
        over
    ]
    points = [
        {**{k: v for k, v in point.items() if k != "batch"}, **_POINT, over: value}
        for point, value in zip(batches["batches"], values, strict=False)
    ]
    fixed = {"batch": 1, "context": 128, "model": "llama-3.1-8b@random"}
    same = {key: value for key, value in batches.items() if key not in ("batches", over)}
    record = same | {k: v for k, v in fixed.items() if k != over} | {f"{over}s": points}
    found = documents(records | {f"{over}-scaling": record}, reports)
    by_name = {path.name: text for path, text in found.items()}
    page = by_name["scaling.md"].partition(f"over {over}s, ")[2]
    assert page.startswith("context 128, batch 1" if over == "model" else "llama-3.1-8b, batch 1")
    first = {"context": "128", "model": "qwen2.5-0.5b"}[over]
    assert re.search(rf"\n\| {first} \| 275 \(274.276\) \| 1.00 \| 3.64 ms \| 15.0 GB \|", page)
    shape = {"context": "circle", "model": "line[@class='measured']"}[over]
    root = ElementTree.fromstring(by_name[f"{over}-scaling.svg"])
    assert len(root.findall(f"{{http://www.w3.org/2000/svg}}{shape}")) == 2


def test_a_format_of_4_bits_stands_beside_its_own_rounding(records, reports):
    changed = copy.deepcopy(records)
    formats = changed["quality-tiny"]["formats"]
    (int8,) = (one for one in formats if one["format"] == "int8")
    formats.append(int8 | {"format": "int4", "rounding": int8["forward"]})
    page = documents(changed, reports)[ROOT / "docs/results/accuracy.md"]
    assert "| format | rounding | forward | steps | KL | top-1 |\n|---|---|---|---|---|---|" in page
    table = page.partition("KL of the steps by position")[0]
    rows = {line.split(" | ")[0]: line.split(" | ") for line in table.splitlines()}
    _, rounding, forward, *others = rows["| INT4 (groups of 128)"]
    assert rounding == forward == rows["| INT8"][2]
    assert others == rows["| INT8"][3:]
