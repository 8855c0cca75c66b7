"""The table of measured tiles, from records made by hand."""

from benchmarks.report.comparisons import dash
from benchmarks.report.records import Record
from benchmarks.report.tuning import tuned_after, tuned_rows

SMALL, WIDE = {"rows": 8, "columns": 512}, {"rows": 8, "columns": 1024}


def search(gpu: str = "NVIDIA H200", batch: int = 1, date: str = "2026-01-01") -> Record:
    """A search that found another tile for `o` in its second pass, and went back in `qkv`."""
    return {
        "model": "some@random",
        "dtype": "bf16",
        "batch": batch,
        "environment": {"gpu": gpu, "date": date},
        "before_ns": {"median": 900_000},
        "after_ns": {"median": 800_000},
        # Of the rounds, and not of the two medians above.
        "before_over_after": {"median": 1.1234, "min": 1.1, "max": 1.2},
        "tiles": {"qkv": SMALL, "o": WIDE, "head": SMALL},
        "passes": [
            [
                {"operation": "qkv", "before": SMALL, "chosen": WIDE},
                {"operation": "o", "before": SMALL, "chosen": SMALL},
                {"operation": "head", "before": SMALL, "chosen": SMALL},
            ],
            [
                {"operation": "qkv", "before": WIDE, "chosen": SMALL},
                {"operation": "o", "before": SMALL, "chosen": WIDE},
                {"operation": "head", "before": SMALL, "chosen": SMALL},
            ],
        ],
    }


def test_a_row_has_the_ratio_of_the_rounds_and_what_changed_from_start_to_end():
    (row,) = tuned_rows({"tune-some": search(), "gemm-8192": {}})
    assert row == [
        "H200",
        "some",
        "`fused`, bf16",
        "1",
        "900 µs",
        "800 µs",
        f"1.123 ({dash('1.100', '1.200')})",
        "o",
        "`tune-some.json`",
    ]


def test_rows_are_in_the_order_of_gpu_and_batch_as_a_number():
    records = {
        "tune-a": search(batch=16),
        "tune-b": search(batch=2),
        "tune-c": search("NVIDIA H100"),
        "tune-d": search() | {"variant": "fused+int8"},
    }
    assert [row[-1] for row in tuned_rows(records)] == [
        "`tune-c.json`",
        "`tune-b.json`",
        "`tune-a.json`",
        "`tune-d.json`",
    ]


def test_newer_searches_of_the_same_gpu_are_those_that_a_record_lacks():
    records = {
        "tune-old": search(date="2026-01-01T09:00"),
        "tune-new": search(date="2026-01-01T11:00"),
        "tune-other": search("NVIDIA H100", date="2026-01-01T11:00"),
    }
    scaled = {"environment": {"gpu": "NVIDIA H200", "date": "2026-01-01T10:00"}}
    assert tuned_after(records, scaled) == ["tune-new"]
