"""The table of other projects' steps, and the sentence of the README."""

from benchmarks.claims.decode.peers import PEERS_1B, PEERS_8B
from benchmarks.claims.report import ClaimResult, EntrantFigures, Race, Row
from benchmarks.report.documents import documents
from benchmarks.report.records import read_records
from decodescope.analyzer.text.formatting import UNKNOWN
from decodescope.variants.tuning.report import RoundSpread
from tests.benchmarks.report.claim_reports import (
    BLOG,
    H100,
    H200,
    cells,
    claim,
    entrant,
    page,
    report,
    wrong,
)

BF16, FP8 = 16_000_000, 8_000_000


def step(name: str, ns: list[float], ours: bool = False, **changes: object) -> EntrantFigures:
    figures = {"bytes_moved": BF16, "launched_ns": RoundSpread.of(ns), "launches": 3.0, "kl": 2e-3}
    return entrant(name, 1e6, ours, **(figures | changes))


def raced(name: str, model: str) -> ClaimResult:
    race = Race(
        f"{model}, bf16, batch 1",
        (
            step("fused+graph", [4e6, 4e6], ours=True),
            step("fused+graph+fp8_e4m3", [2e6, 2e6], ours=True, bytes_moved=FP8),
            step("eager", [50e6, 50e6]),
            step("gpt-fast", [4e6, 6e6]),
            step("torchao-fp8", [5e6, 5e6], bytes_moved=FP8, kl=None),
            wrong("liger"),
        ),
        "steps",
    )
    rows = (
        Row("gpt-fast", "tokens_per_s", 93.9, RoundSpread.of([250.0, 166.7])),
        Row("fused+graph / gpt-fast", "ratio", None, RoundSpread.of([1.0, 1.5])),
        Row("fused+graph+fp8_e4m3 / torchao-fp8", "ratio", None, RoundSpread.of([2.5, 2.5])),
        Row("fused+graph / liger", "ratio", None, error="liger: relative error 0.5"),
    )
    return claim(name, BLOG, race, rows=rows)


def table(text: str) -> list[list[str]]:
    section = text.partition("## Other projects beside ours")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|") and "---" not in line]
    return [[one.strip() for one in cells(line)[1:-1]] for line in lines]


def test_steps_are_beside_ours_by_format_and_speed():
    models = raced(PEERS_8B.name, "llama-8b@random"), raced(PEERS_1B.name, "llama-1b@random")
    header, *lines = table(
        page({"a": report(H200, models[0]), "b": report(H200, models[1])}, "comparisons")
    )
    assert header[1:3] == ["step", "tokens/s"]
    busy = "1.00 ms"
    one_model = [
        ["`eager`", "20.0", "0.2 %", busy, "3", "0.002", UNKNOWN],
        [
            "`gpt-fast`",
            "208 (167 to 250)",
            "0.2 %",
            busy,
            "3",
            "0.002",
            "`fused+graph` x1.25 (x1.00 to x1.50)",
        ],
        ["**`fused+graph`**", "250", "0.2 %", busy, "3", "0.002", UNKNOWN],
        ["`torchao-fp8`", "200", "0.2 %", busy, "3", UNKNOWN, "`fused+graph+fp8_e4m3` x2.50"],
        ["**`fused+graph+fp8_e4m3`**", "500", "0.2 %", busy, "3", "0.002", UNKNOWN],
    ]
    # The order of the claims, whatever that of the files.
    assert [line[0] for line in lines] == ["llama-1b", *[""] * 4, "llama-8b", *[""] * 4]
    assert [line[1:] for line in lines] == one_model * 2


def test_every_gpu_has_its_own_table_and_the_readme_its_own_sentence():
    reports = {
        gpu: report(gpu, raced(PEERS_8B.name, f"llama-8b-of-{gpu[-4:]}@random"))
        for gpu in (H200, H100)
    }
    written = {path.name: text for path, text in documents(read_records(), reports).items()}
    assert written["comparisons.md"].count("## Other projects beside ours") == 1
    assert [line[0] for line in table(written["comparisons.md"]) if line[0]] == [
        "model",
        "llama-8b-of-H200",
        "model",
        "llama-8b-of-HBM3",
    ]
    words = " ".join(written["README.md"].split())
    ours = "llama-8b-of-H200 on an H200, in the same rounds: `gpt-fast` x1.25 (x1.00 to x1.50)"
    assert f"{ours}, `torchao-fp8` x2.50 (" in words
    assert words.count("`gpt-fast` x1.25") == 2


def test_without_such_a_claim_there_is_no_section(reports):
    assert "Other projects beside ours" not in page(reports, "comparisons")
