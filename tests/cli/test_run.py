"""run and the lists as scripts use them: what goes to stdout, the one error line, the exit code."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.command import Command

RUN_KEYS = {
    "schema_version",
    "model",
    "weights",
    "variant",
    "device",
    "dtype",
    "batch",
    "context",
    "tokens",
    "prompt_token_ids",
    "output_token_ids",
    "tokens_per_s",
    "step_ns",
    "launch_calls_per_step",
    "gpu_ops_per_step",
    "gpu_idle_fraction",
    "bytes_per_step",
    "bandwidth",
    "answer",
    "environment",
    "sampling",
}
ANALYZE_KEYS = {
    "schema_version",
    "source",
    "health",
    "devices",
    "launches",
    "steps",
    "kernels",
    "ranges",
    "answer",
}
SMALL_RUN = ("run", "--model", "tiny", "--device", "cpu", "--context", "8", "--tokens", "20")


Run = tuple[dict[str, Any], Path]


@pytest.fixture(scope="module")
def run(fresh_decodescope: Command, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """One measured run of the bundled model and the window it kept."""
    trace = tmp_path_factory.mktemp("run") / "window.json.gz"
    done = fresh_decodescope(*SMALL_RUN, "--json", "--trace", str(trace))
    assert done.code == 0, done.err
    return json.loads(done.out), trace


def test_run_prints_the_documented_report(run: Run) -> None:
    report, _ = run
    assert report.keys() >= RUN_KEYS
    assert (report["model"], report["weights"], report["device"]) == ("tiny", "bundled", "cpu")
    assert (report["dtype"], report["batch"], report["context"]) == ("fp32", 1, 8)
    assert len(report["prompt_token_ids"][0]) == 8
    assert len(report["output_token_ids"][0]) == report["tokens"] == 20
    assert report["timed_steps"] == 20 - 5 - (1 + 1 + 3)
    rate = 1e9 / report["step_ns"]["mean"]
    assert report["tokens_per_s"] == pytest.approx(rate, rel=1e-5)
    assert report["launch_calls_per_step"] is None
    assert report["sampling"] is None
    assert report["gpu_ops_per_step"] > 50


def test_the_parts_add_up_to_the_profiled_step(run: Run) -> None:
    report, _ = run
    answer = report["answer"]
    assert sum(part["ns"] for part in answer["parts"]) == answer["step_ns"]
    assert (answer["kind"], answer["steps"], answer["batch"]) == ("decode", 3, 1)
    assert answer["unprofiled_step_ns"] > 0


def test_the_kept_window_matches_the_report(run: Run, decodescope: Command) -> None:
    report, trace = run
    analysis = json.loads(decodescope("analyze", str(trace), "--json").out)
    assert analysis.keys() >= ANALYZE_KEYS
    (device,) = analysis["devices"]
    assert device["device"] == "cpu"
    assert sum(gap["total_ns"] for gap in device["gaps"].values()) == device["idle_ns"]
    assert report["gpu_idle_fraction"] == device["idle_ns"] / device["window_ns"]
    assert len(analysis["steps"]) == 3
    paths = {entry["path"] for entry in analysis["ranges"]}
    assert {"decode_step", "decode_step/model/layer.0/attention"} <= paths
    csv = decodescope("analyze", str(trace), "--format", "csv").out
    assert len(csv.splitlines()) == 1 + len(analysis["kernels"])


@pytest.mark.parametrize("arguments", [(), ("--show", "gaps"), ("--show", "all")])
def test_tables_name_the_device(run: Run, decodescope: Command, arguments: tuple[str]) -> None:
    done = decodescope("analyze", str(run[1]), *arguments)
    assert done.code == 0
    assert "device: cpu" in done.out


def test_export_writes_a_chrome_trace(run: Run, decodescope: Command, tmp_path: Path) -> None:
    output = tmp_path / "out.json.gz"
    done = decodescope("export", str(run[1]), "--to", "chrome", "-o", str(output))
    assert done.code == 0
    assert str(output) in done.err
    assert json.loads(gzip.decompress(output.read_bytes()))["traceEvents"]
    assert [path.name for path in tmp_path.iterdir()] == ["out.json.gz"]


def test_without_a_terminal_the_app_prints_a_summary(decodescope: Command) -> None:
    done = decodescope("--model", "tiny", "--device", "cpu", "--context", "4")
    assert done.code == 0
    assert "tokens/s" in done.out
    assert "bundled weights" in done.out
    assert "device: cpu" in done.out


def test_a_sampled_run_reports_its_settings(run: Run, decodescope: Command) -> None:
    sampled = (*SMALL_RUN, "--temperature", "1.5", "--top-k", "40", "--top-p", "0.95", "--json")
    report = json.loads(decodescope(*sampled, "--seed", "7").out)
    assert report["sampling"] == {"temperature": 1.5, "top_k": 40, "top_p": 0.95, "seed": 7}
    assert report["prompt_token_ids"] == run[0]["prompt_token_ids"]
    assert report["output_token_ids"] != run[0]["output_token_ids"]


def test_the_given_prompt_is_decoded(decodescope: Command) -> None:
    done = decodescope(
        "run",
        "--model",
        "tiny",
        "--device",
        "cpu",
        "--prompt-ids",
        "5,6,7",
        "--batch",
        "2",
        "--tokens",
        "4",
        "--json",
    )
    report = json.loads(done.out)
    assert report["prompt_token_ids"] == [[5, 6, 7], [5, 6, 7]]
    assert report["context"] == 3
    assert report["output_token_ids"][0] == report["output_token_ids"][1]


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("rnu",), 2, "did you mean run?"),
        (("run", "--model", "some/where"), 3, "some/where"),
        (("live", "--record", "r.dsrec"), 2, "terminal"),
    ],
)
def test_bad_usage_is_one_line_and_a_code(
    fresh_decodescope: Command, arguments: tuple[str, ...], code: int, words: str, tmp_path: Path
) -> None:
    done = fresh_decodescope(*arguments, cwd=tmp_path)
    assert done.code == code, done.err
    assert words in done.only_line
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("run", "--nope"), 2, "--nope"),
        (("config",), 2, "config: needs a command: path or show"),
        (("config", "--json"), 2, "--json"),
        (("config", "live"), 2, "no command live: one of: path, show"),
        (("config", "shown"), 2, "no command shown: did you mean show?"),
        (("",), 2, "no command '': one of: live"),
        (("analyze", ""), 2, "'FILE...': the name is empty"),
        (("diff", "a", "b", "--out", ""), 2, "'--out': the name is empty"),
        (("analyze", "a", "--json", "--format", "csv"), 2, "--json and --format csv: give one"),
        (("analyze", "a", "--json", "--format", "table"), 2, "--json and --format table"),
        (
            ("analyze", "a", "b", "--json", "--by", "gap"),
            2,
            "--by gap: only with CSV; json holds all",
        ),
        (("analyze", "a", "--format", "html", "--by", "range"), 2, "--by range: only with"),
        (("export", "a", "--to", "chrome", "-o", "o", "--by", "gap"), 2, "--by gap: only with"),
        (("analyze", "a", "--by", "gap"), 2, "--by gap: only with CSV; a table has --show gaps"),
        (("analyze", "a", "--show", "gap"), 2, "--show gap: give all, or some of answer, health, "),
        (("analyze", "a", "--show", "ranks"), 2, "--show ranks: give all, or some of answer, "),
        (("analyze", "a", "b", "--show", "x"), 2, "--show x: give all, or some of ranks, answer, "),
        (("analyze", "a", "--json", "--show", "gaps"), 2, "--show gaps: only with a table; json"),
        (("run", "--tokens", "0"), 2, "--tokens 0"),
        (("run", "--model", "tiny", "--variant", "compiled", "--device", "cpu"), 3, "CUDA"),
        (("run", "--trace", "/no/such/folder/t.json"), 2, "/no/such/folder"),
        (("analyze", "/no/such.json"), 2, "/no/such.json"),
        (("run", "--batch", "0"), 2, "--batch 0"),
        (("run", "--batch", "many"), 2, "many"),
        (("run", "--variant", "egaer"), 2, "did you mean eager?"),
        (("run", "--model", "tiny", "--context", "1000", "--device", "cpu"), 2, "1024"),
        (("run", "--model", "llama-3.2-1@random"), 2, "llama-3.2-1b@random"),
        (("run", "--model", "./nowhere"), 3, "./nowhere"),
        (("run", "--prompt-ids", "1,x"), 2, "whole numbers"),
        (("run", "--prompt", "a", "--prompt-ids", "1"), 2, "--prompt"),
        (("run", "--prompt", "a", "--context", "3"), 2, "--context"),
        (("run", "--prompt-file", "no.txt"), 2, "--prompt-file no.txt: cannot be read"),
        (("run", "--prompt-file", "x", "--prompt", "a"), 2, "--prompt and --prompt-file"),
        (("run", "--prompt-file", "x", "--context", "3"), 2, "--context"),
        (("run", "--top-k", "3", "--seed", "1"), 2, "--top-k, --seed: without a --temperature"),
        (("run", "--temperature", "0", "--top-p", "0.5"), 2, "--top-p: without a --temperature"),
        (("compare", "--variants", "a,b", "--seed", "5"), 2, "--seed: without a --temperature"),
        (("live", "--top-p", "0.9"), 2, "--top-p: without a --temperature"),
        (
            ("live", "--once", "--temperature", "nan"),
            2,
            "'--temperature': nan is not a finite number",
        ),
        (("compare", "--temperature", "1e999"), 2, "inf is not a finite number"),
        (("run", "--temperature", "1", "--top-p", "-inf"), 2, "-inf is not a finite number"),
        (("run", "--trace", "t.txt"), 2, ".json"),
        (("analyze",), 2, "FILE"),
        (("open", "/no/such.json"), 2, "/no/such.json"),
        (("export", "x", "--to", "chrome", "-o", "/no/such/folder/o.json"), 2, "/no/such/folder"),
    ],
)
def test_each_mistake_is_named(
    decodescope: Command,
    arguments: tuple[str, ...],
    code: int,
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    done = decodescope(*arguments)
    assert done.code == code, done.err
    assert words in done.only_line
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_weights(decodescope: Command, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    done = decodescope("run", "--model", str(tmp_path))
    assert done.code == 2
    assert "safetensors" in done.only_line


def test_a_traceback_only_on_request(fresh_decodescope: Command) -> None:
    done = fresh_decodescope("analyze", "/no/such.json", "--debug")
    assert done.code == 2
    assert "Traceback" in done.err


@pytest.mark.parametrize("command", ["models", "variants", "doctor"])
def test_lists(decodescope: Command, command: str) -> None:
    done = decodescope(command)
    assert done.code == 0, done.err
    assert "tiny" in done.out or "compiled" in done.out


@pytest.mark.parametrize("option", ["-h", "--help"])
def test_help_lists_the_commands(fresh_decodescope: Command, option: str) -> None:
    done = fresh_decodescope(option)
    assert done.code == 0
    assert all(word in done.out for word in ("analyze", "live", "run", "export"))
