"""The table at a glance: each published figure once, a baseline nowhere."""

from benchmarks.claims.report import ClaimsReport, Row
from benchmarks.report.glance import common_words, distinct_words
from decodescope.analyzer.text.formatting import UNKNOWN
from tests.benchmarks.report.claim_reports import (
    BLOG,
    H100,
    H200,
    LADDER,
    ROWS,
    cells,
    claim,
    page,
    report,
    spread,
    tables,
)


def glance(reports: dict[str, ClaimsReport]) -> list[list[str]]:
    """The cells of the table at a glance, its header first."""
    table = tables(page(reports))[0]
    return [[one.strip() for one in cells(line)[1:-1]] for line in table if "---" not in line]


def test_at_a_glance_each_published_figure_is_beside_every_gpu(reports):
    header, *lines = glance(reports)
    assert header == [
        "source, its GPU",
        "figure",
        "theirs",
        "H200",
        "reached",
        "H100 80GB HBM3",
        "reached",
        "not reached because",
    ]
    blog, name = f"[A \\| blog]({BLOG.url}), A100", "`prefill-norms`: "
    assert lines == [
        [
            blog,
            name + "RMSNorm \\| fused",
            "x8.10",
            "x9.50 (limit x10.0)",
            "1 of 1",
            "x9.50 (limit x10.0)",
            "1 of 1",
            "",
        ],
        [
            "",
            name + "SwiGLU",
            "x1.60",
            "x1.25 (limit x1.67)",
            "**0 of 1**",
            UNKNOWN,
            UNKNOWN,
            "H200: 5 for 3 elements",
        ],
        ["", name + "first launch", "2.40 ms", "1.20 ms", UNKNOWN, UNKNOWN, UNKNOWN, ""],
        [
            "",
            name + "an INT8 product",
            "50.0 %",
            UNKNOWN,
            "**0 of 1**",
            UNKNOWN,
            UNKNOWN,
            "H200: not measured: int8: relative error 0.5",
        ],
    ]


def test_rows_of_one_published_figure_are_one_line(reports):
    rows = (
        Row("block after 64 tokens (M = 1), graph", "ratio", 5.4, spread(91.5), explanation="a"),
        Row("block after 128 tokens (M = 2), graph", "ratio", 5.4, spread(4.0), explanation="long"),
        Row("block after 256 tokens (M = 2), graph", "ratio", 5.4, spread(5.0), explanation="why"),
        Row("the same number", "share", 5.4, spread(6.0)),
    )
    two, one = claim("two", BLOG, rows=rows), claim("one", LADDER, rows=rows[:3])
    _, *lines = glance({"x": report(H200, two, one)})
    together = ["x4.00 to x91.5 in 3 conditions", "**1 of 3**", "why"]
    assert lines[0][1:] == ["`two`: block after … tokens, graph", "x5.40", *together]
    assert lines[1][1:] == ["`two`: the same number", "540.0 %", "600.0 %", "1 of 1", ""]
    # All figures of a claim are what its title says.
    assert lines[2][1:] == ["`one`: what one says", "x5.40", *together]


def test_a_figure_with_one_row_has_the_rows_name(reports):
    beside = Row("ours / theirs", "ratio", None, spread(2.0))
    only = claim("only", BLOG, rows=(Row("theirs", "tokens_per_s", 93.9, spread(214.0)), beside))
    _, line = glance({"x": report(H200, only)})
    assert line[1] == "`only`: theirs"


def test_the_reason_is_of_the_sources_gpu_where_it_was_measured():
    def missed(gpu: str, why: str) -> ClaimsReport:
        row = Row("a rung", "share", 0.9, spread(0.8), explanation=why)
        return report(gpu, claim("rmsnorm", LADDER, rows=(row,)))

    _, line = glance({"a": missed(H200, "short"), "b": missed(H100, "a longer reason")})
    assert line[-1] == "H100 80GB HBM3: a longer reason"


def test_what_a_source_improves_on_is_found_here_too_and_counts_nowhere(reports):
    text = page(reports)
    found = text.partition("Found here too")[2].partition("\n## ")[0]
    assert "- `prefill-norms`: eager's share: theirs 11.0 % (A100); here 9.0 % on H200\n" in found
    assert "Found here too" not in page({"x": report(H200, claim("x", BLOG, rows=ROWS[:4]))})


def test_names_have_in_common_their_beginnings_and_ends_only():
    assert common_words(["a b c"]) == "a b c"
    assert common_words(["up to (M = 1)", "up to (M = 1)"]) == "up to (M = 1)"
    assert common_words(["up to (M = 1)", "up to (M = 2)"]) == "up to"
    assert common_words(["a a", "a a a"]) == "a a …"
    assert common_words(["x one by one", "y z one by one"]) == "… one by one"


def test_distinct_words_are_those_between_and_never_none():
    assert distinct_words(["x a z", "x b c z"]) == ["a", "b c"]
    assert distinct_words(["same", "same"]) == ["same", "same"]
    assert distinct_words(["a b", "a b c"]) == ["a b", "c"]
