"""Reports of `claims` with chosen figures, and the page that is written from them."""

import re

import msgspec

from benchmarks.claims.report import (
    SCHEMA_VERSION,
    ClaimResult,
    ClaimsReport,
    Clocks,
    EntrantFigures,
    Race,
    Row,
    Source,
)
from benchmarks.report.documents import documents
from benchmarks.report.records import read_records
from decodescope.variants.tuning.report import RoundSpread

H200, H100 = "NVIDIA H200", "NVIDIA H100 80GB HBM3"
BLOG = Source("A blog | of kernels", "https://blog.example/kernels", "A100", "A | blog")
LADDER = Source("A ladder", "https://ladder.example", "H100")
SVG = "{http://www.w3.org/2000/svg}"


def spread(value: float) -> RoundSpread:
    return RoundSpread.of([value * 0.99, value, value * 1.02])


def entrant(name: str, ns: float, ours: bool = True, **changes: object) -> EntrantFigures:
    figures = EntrantFigures(
        name,
        f"{name} in words",
        ours,
        bytes_moved=8_000_000,
        flops=16_000_000,
        bound_ns=2000.0,
        device_ns=spread(ns),
        launched_ns=spread(ns * 2),
        share_of_bound=2000.0 / ns,
        relative_error=1e-4,
        tolerance=1e-3,
    )
    return msgspec.structs.replace(figures, **changes)


def wrong(name: str) -> EntrantFigures:
    return EntrantFigures(name, name, False, error="relative error 0.5 (allowed: 0.001)")


def claim(name: str, source: Source, *races: Race, rows: tuple[Row, ...] = ()) -> ClaimResult:
    clocks = Clocks(1755, 1980, 512.0, ("sw_power_cap",))
    return ClaimResult(name, f"what {name} says", source, "ratios compare", rows, races, (), clocks)


def report(gpu: str, *claims: ClaimResult, date: str = "2026-11-22T22:30:00+00:00") -> ClaimsReport:
    environment = {"gpu": gpu, "driver": "580.1", "torch": "2.11.0", "commit": "abcdef0123456"}
    return ClaimsReport(
        SCHEMA_VERSION,
        4.6e12,
        None,
        4.8e12,
        1200.0,
        60 << 20,
        9,
        claims,
        {**environment, "date": date},
    )


ROWS = (
    Row("RMSNorm | fused", "ratio", 8.1, spread(9.5), 10.0, 0.585, 0.93, explanation="36 x bytes"),
    Row("SwiGLU", "ratio", 1.6, spread(1.25), 1.667, 0.79, 0.75, explanation="5 for 3 elements"),
    Row("first launch", "ns", 2.4e6, spread(1.2e6), higher_is_better=False, explanation="compiles"),
    Row("beside a peer", "ratio", None, spread(1.01)),
    Row("an INT8 product", "share", 0.5, error="int8: relative error 0.5"),
    Row("eager's share", "share", 0.11, spread(0.09), baseline=True),
)
RACE = Race(
    "2,048 tokens",
    (
        entrant("pytorch", 20_000, False, traffic_bytes=72_000_000),
        entrant("ours", 2_500),
        entrant("same_bytes", 2_400, False),
        wrong("liger"),
    ),
)


def products(m: int) -> Race:
    size = f"M = {m}, N = 8192, K = 8192"
    return Race(size, (entrant("split_k", 18_000 + m), entrant("cublas", 34_000, False)))


def steps(model: str) -> Race:
    variants = (entrant("fused+graph", 700_000, kl=2e-4), entrant("compiled", 1_500_000, False))
    return Race(model, variants, "steps")


def example_reports() -> dict[str, ClaimsReport]:
    """Two sources, on two GPUs, in three files."""
    return {
        "h200-a": report(H200, claim("prefill-norms", BLOG, RACE, rows=ROWS)),
        "h200-b": report(
            H200,
            claim("tk-gemm", LADDER, *(products(m) for m in (1, 16, 64))),
            claim(
                "rmsnorm",
                LADDER,
                Race("2^18 x 2^12", (entrant("looped", 4000), entrant("device copy", 2100, False))),
                Race("2^18 x 2^12: looped", (entrant("1024 columns", 4000),)),
            ),
            claim("peers", BLOG, steps("llama-3.2-1b@random"), steps("llama-3.1-8b@random")),
        ),
        "h100": report(H100, claim("prefill-norms", BLOG, RACE, rows=ROWS[:1])),
    }


def page(reports: dict[str, ClaimsReport], name: str = "claims") -> str:
    """The page of that name below docs/results."""
    found = documents(read_records(), reports)
    return next(
        text
        for path, text in found.items()
        if path.parent.name == "results" and path.name == f"{name}.md"
    )


def tables(text: str) -> list[list[str]]:
    return [table.splitlines() for table in re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)]


def cells(line: str) -> list[str]:
    return re.split(r"(?<!\\)\|", line)
