"""--progress: the stages of a command as lines of text or JSON, in one form for all commands."""

import json

import pytest

from decodescope.analyzer.comparing.comparison import compare_runs
from decodescope.analyzer.comparing.comparison_messages import ComparisonProgress
from decodescope.analyzer.errors import InputError
from decodescope.cli.main import COMMANDS
from decodescope.variants.comparing import command as compare
from decodescope.variants.measuring import run
from tests.helpers.command import Command
from tests.helpers.comparison_reports import runs_of

COMPARE = ("compare", "--variants", "eager,fused")
FIRST = ComparisonProgress(5, 0, "eager", "loading", last_tokens_per_s=None)


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """`compare` without measuring: its progress, and two equal variants."""
    result = compare_runs(
        runs_of({"eager": [27.0, 28.0, 29.0], "fused": [655.0, 656.0, 654.0]}), {}
    )

    def compare_variants(request, tell):
        for event in (FIRST, ComparisonProgress(5)):
            tell(event)
        return result

    monkeypatch.setattr(compare, "compare_variants", compare_variants)


@pytest.mark.usefixtures("measured")
def test_json_lines_have_the_facts_of_each_stage(decodescope: Command) -> None:
    lines = decodescope(*COMPARE, "--progress", "json").err.splitlines()
    assert [json.loads(line) for line in lines] == [
        {
            "progress": "round 1 of 5: eager: loading",
            "rounds": 5,
            "round": 0,
            "variant": "eager",
            "stage": "loading",
            "last_tokens_per_s": None,
        },
        {
            "progress": "comparing",
            "rounds": 5,
            "round": None,
            "variant": "",
            "stage": "",
            "last_tokens_per_s": None,
        },
    ]


@pytest.mark.usefixtures("measured")
def test_text_is_one_line_a_stage(decodescope: Command) -> None:
    done = decodescope(*COMPARE, "--progress", "text")
    assert done.err == "round 1 of 5: eager: loading\ncomparing\n"
    assert decodescope(*COMPARE) == done
    assert decodescope(*COMPARE, "--progress", "xml").code == 2


@pytest.mark.usefixtures("measured")
def test_the_ratios_stand_first_and_last(decodescope: Command) -> None:
    lines = decodescope(*COMPARE).out.splitlines()
    titles = [place for place, line in enumerate(lines) if line == "Ratios of tokens/s"]
    assert len(titles) == 2
    assert titles[0] < lines.index("Tokens/s, unprofiled, and figures of a step") < titles[1]
    assert lines[titles[0] :][:3] == lines[titles[1] :]


def test_run_says_its_stages_only_if_asked(
    decodescope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_variant(config, trace, show):
        show("loading \x1b[31m")
        raise InputError("that is all")

    monkeypatch.setattr(run, "run_variant", run_variant)
    end = "decodescope: that is all"
    assert decodescope("run").err == f"{end}\n"
    assert decodescope("run", "--progress", "text").err == f"loading \\x1b[31m\n{end}\n"
    line, last = decodescope("run", "--progress", "json").err.splitlines()
    assert json.loads(line) == {"progress": "loading \x1b[31m"}
    assert last == end


def test_every_command_that_shows_stages_has_the_option() -> None:
    with_option = {
        command.name
        for command in COMMANDS
        if any("--progress" in parameter.opts for parameter in command.params)
    }
    assert with_option == {"attach", "compare", "run", "tune"}
