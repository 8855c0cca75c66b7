"""--model and the other options that say what a trace does not."""

import json
from pathlib import Path

import pytest

from decodescope.analyzer.recordings.bundled import bundled_recordings
from tests.helpers.command import Command

OWN = str(next(path for path in bundled_recordings() if path.stem.endswith("fused+graph")))


def test_the_model_gives_roles_their_limits(decodescope: Command, foreign_traces: Path) -> None:
    trace = str(foreign_traces / "mi300x_vllm_decode_graph.json.gz")
    done = decodescope("analyze", trace, "--model", "gpt-oss-20b", "--json")
    report = json.loads(done.out)
    assert (done.code, report["step_cost"]["source"]) == (0, "model")
    assert all(part["limit_ns"] for part in report["answer"]["parts"] if part["bytes"])
    shown = decodescope(
        "analyze", trace, "--model", "gpt-oss-20b", "--peak", "4TB/s", "--show", "answer"
    ).out
    assert "4,000 GB/s at most" in shown


def test_the_model_is_guessed_unless_it_is_none(decodescope: Command, foreign_traces: Path) -> None:
    trace = str(foreign_traces / "mi300x_vllm_decode_graph.json.gz")
    for options in ((), ("--model", "auto"), ("--model", "auto", "--weights", "mxfp4")):
        report = json.loads(decodescope("analyze", trace, *options, "--json").out)
        assert report["step_cost"]["source"] == "guess"
        assert report["answer"]["model_source"] == "guessed"
    report = json.loads(decodescope("analyze", trace, "--model", "none", "--json").out)
    assert report["step_cost"] is None
    # The head is the one product whose shape the trace has.
    assert [part["part"] for part in report["answer"]["parts"] if part["limit_ns"]] == ["head"]
    assert (report["answer"]["model_source"], report["answer"]["limit_is_lower_bound"]) == (
        "shapes",
        True,
    )


def test_rules_of_the_users_decide(decodescope: Command, tmp_path: Path) -> None:
    rules = tmp_path / "mine.toml"
    rules.write_text("[[rule]]\npattern = '_embed_kernel'\nkind = 'copy'\nrole = 'other'\n")
    before, after = (
        {part["part"]: part["confidence"] for part in json.loads(done.out)["answer"]["parts"]}
        for done in (
            decodescope("analyze", OWN, "--json"),
            decodescope("analyze", OWN, "--json", "--roles", str(rules)),
        )
    )
    assert (before["copy"], after["copy"]) == ("exact", "none")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--model", "nosuch-9b"), "no model called nosuch-9b is known"),
        (("--model", "missing/config.json"), "name a model's config.json"),
        (("--model", "none", "--weights", "fp8"), "--weights: says something of a model"),
        (
            ("--model", "none", "--tensor-parallel", "2"),
            "--tensor-parallel: says something of a model",
        ),
        (("--model", "none", "--batch", "2"), "--batch: says something of a model"),
        (("--model", "llama-3.2-1b", "--batch", "0"), "--batch"),
        (("--model", "llama-3.2-1b", "--weights", "fp9"), "no such format"),
        (("--weights", "fp9"), "no such format"),
        (("--weights", "fp8,heads=fp8"), "no such part"),
        (("--peak", "fast"), "no figure with a unit"),
        (("--roles", "missing.toml"), "cannot be read as rules"),
    ],
)
def test_what_cannot_be_is_one_line(
    decodescope: Command, options: tuple[str, ...], says: str
) -> None:
    done = decodescope("analyze", OWN, *options)
    assert (done.code, done.out) == (2, "")
    assert says in " ".join(done.err.split())


def test_a_recording_needs_no_options(decodescope: Command) -> None:
    done = decodescope("open", OWN, "--once", "--model", "llama-3.2-1b")
    assert done.code == 2
    assert "is a recording" in " ".join(done.err.split())
