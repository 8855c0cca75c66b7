"""analyze, diff and export as scripts use them: files, exit codes, one error line."""

import gzip
import json
import os
import re
from pathlib import Path

import msgspec
import pytest

from decodescope.analyzer.comparing.sides import sides_of
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.schema.comparison_report import Diff
from decodescope.analyzer.schema.ranks_report import RanksReport
from decodescope.analyzer.schema.report import Report
from tests.helpers.app.recorded import write_window
from tests.helpers.command import Command
from tests.helpers.foreign import rocprof_files
from tests.helpers.foreign.nsys_files import Export
from tests.helpers.foreign.proton_files import kernel, scope, tree
from tests.helpers.kineto_events import call, document, op

COMPILED, EAGER = (str(path) for path in bundled_recordings()[:2])


def rank_file(folder: Path, rank: int, base_ns: int = 10**18) -> str:
    path = folder / f"rank{rank}.json"
    events = [call(1, 3, 5), op(10, 60 + rank, 5, name=f"kernel_of_{rank}")]
    keys = {"distributedInfo": {"rank": rank, "world_size": 2}, "baseTimeNanoseconds": base_ns}
    path.write_bytes(document(events, **keys))
    return str(path)


def test_diff_says_what_changed_and_writes_it(decodescope: Command, tmp_path: Path) -> None:
    done = decodescope("diff", EAGER, COMPILED, "--json", "--out", str(tmp_path / "new" / "diff"))
    assert done.code == 0
    diff = msgspec.json.decode(done.out, type=Diff)
    assert [side.launches for side in sides_of(diff)] == [679, 3]
    written = tmp_path / "new" / "diff"
    assert {path.name for path in written.iterdir()} == {"diff.json", "diff.md", "diff.html"}
    assert msgspec.json.decode((written / "diff.json").read_bytes(), type=Diff) == diff
    assert "679" in (written / "diff.md").read_text()
    assert (written / "diff.html").read_text().rstrip().endswith("</html>")


@pytest.mark.parametrize(("target", "ending"), [("html", "</html>"), ("csv", "")])
def test_exports(decodescope: Command, tmp_path: Path, target: str, ending: str) -> None:
    path = tmp_path / f"out.{target}"
    rows = ("--by", "gap") if target == "csv" else ()
    done = decodescope("export", COMPILED, "--to", target, "-o", str(path), *rows)
    assert (done.code, done.out) == (0, "")
    text = path.read_text()
    assert text.rstrip().endswith(ending)
    assert "graph_internal" in text


def test_every_command_reads_rocprofv3(decodescope: Command, tmp_path: Path) -> None:
    process = rocprof_files.Process()
    for step in range(1, 5):
        at = 1000 * step
        process.marker(at, at + 900, 10 * step, "decode_step")
        process.call(at + 10, at + 20, 10 * step + 1)
        process.kernel(at + 30, at + 230, 10 * step + 1)
    file = str(rocprof_files.write(tmp_path / "7_results.json", process))
    report = msgspec.json.decode(decodescope("analyze", file, "--json").out, type=Report)
    assert (report.source.format, report.launches.calls) == ("rocprof-json", 4)
    assert "AMD Instinct MI300X" in decodescope("analyze", file).out
    diff = msgspec.json.decode(decodescope("diff", file, file, "--json").out, type=Diff)
    assert diff.base.launches == diff.other.launches
    for target in ("chrome", "html", "csv"):
        out = tmp_path / f"out.{target}"
        assert decodescope("export", file, "--to", target, "-o", str(out)).code == 0
        assert "gemm" in out.read_text()


def test_keep_says_where_the_export_of_a_report_goes(
    decodescope: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, report, kept = (tmp_path / name for name in ("made.sqlite", "a b.nsys-rep", "kept"))
    export = Export()
    export.kernel(10, 20, 1)
    export.write(made)
    report.write_text("report")
    fake = tmp_path / "nsys"
    fake.write_text(f'#!/bin/sh\ncp "{made}" "$7"\n')
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    done = decodescope("analyze", str(report), "--keep", str(kept), "--json")
    assert msgspec.json.decode(done.out, type=Report).source.path == str(kept)
    assert kept.read_bytes() == made.read_bytes()
    for files in ([made], [report, report]):
        refused = decodescope("analyze", *map(str, files), "--keep", str(kept))
        assert refused.code == 2
        assert "only with one report of Nsight Systems" in refused.only_line
    assert "is a folder" in decodescope("analyze", str(report), "--keep", str(tmp_path)).only_line


def test_a_tree_of_totals_is_shown_with_what_it_lacks(decodescope: Command, tmp_path: Path) -> None:
    path = tmp_path / "proton.hatchet"
    path.write_text(json.dumps(tree(scope("decode", kernel("gemm", 4, 8_000)))))
    table = decodescope("analyze", str(path)).out
    assert "a tree of totals has no times, so no steps, gaps or launches" in table.splitlines()
    assert re.search(r"^gemm +4 +8\.00 µs +2\.00 µs +100\.0", table, re.MULTILINE)
    assert "attributed" not in table
    for target in ("html", "csv", "chrome"):
        out = tmp_path / f"out.{target}"
        assert decodescope("export", str(path), "--to", target, "-o", str(out)).code == 0


def test_ranks_have_a_report_each_and_one_of_all(decodescope: Command, tmp_path: Path) -> None:
    files = [rank_file(tmp_path, 1), rank_file(tmp_path, 0)]
    ranks = msgspec.json.decode(decodescope("analyze", *files, "--json").out, type=RanksReport)
    assert [one.rank for one in ranks.ranks] == [0, 1]
    assert ranks.merged is not None
    assert [device.window_ns for device in ranks.merged.devices] == [50, 51]
    table = decodescope("analyze", *files).out
    assert "2 ranks" in table
    assert "kernel_of_1" in table
    assert "kernel_of_0" in decodescope("analyze", *files, "--format", "csv").out
    page = decodescope("analyze", *files, "--format", "html").out
    assert "kernel_of_0" in page
    assert "all ranks" in page


def test_who_waits_for_whom_is_in_every_output(decodescope: Command, tmp_path: Path) -> None:
    name = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL"
    files = []
    for rank, late in enumerate((0, 600, 100)):
        events = [call(1, 3, 5)]
        for k in range(40):
            at = 20_000 * k
            events += [op(at, at + 900, 5), op(at + 1000 + late, at + 9000, 5, name=name)]
        keys = {"distributedInfo": {"rank": rank, "world_size": 3}, "baseTimeNanoseconds": 10**18}
        files.append(tmp_path / f"rank{rank}.json")
        files[-1].write_bytes(document(events, **keys))
    paths = [str(path) for path in files]
    ranks = msgspec.json.decode(decodescope("analyze", *paths, "--json").out, type=RanksReport)
    communication = ranks.communication
    straggler = communication.straggler
    assert straggler is not None
    assert (straggler.rank, straggler.cost_ns) == (1, 40 * (600 + 500) // 2)
    assert [one.wait_ns for one in communication.ranks] == [24_000, 0, 20_000]
    overview = " ".join(decodescope("analyze", *paths).out.split())
    assert "straggler: rank 1 entered 40 of 40 collectives last" in overview
    for output in (("--show", "all"), ("--format", "html")):
        shown = " ".join(decodescope("analyze", *paths, *output).out.split())
        assert "straggler: rank 1 entered 40 of 40 collectives last (13 by chance)" in shown
        assert "20.0 µs" in shown
        assert "24.0 µs" in shown
    merged = tmp_path / "all.json"
    assert decodescope("export", *paths, "--to", "chrome", "-o", str(merged)).code == 0
    written = json.loads(merged.read_bytes())["traceEvents"]
    waits = [one for one in written if one.get("cat") == "collective_wait"]
    assert sum(round(1000 * one["dur"]) for one in waits) == 24_000 + 20_000
    assert {one["name"] for one in waits} == {"waits for rank 1 GPU 0"}
    # It reads back as what it was merged from.
    again = msgspec.json.decode(decodescope("analyze", str(merged), "--json").out, type=Report)
    assert ranks.merged is not None
    assert [one.gpu_ops for one in again.devices] == [80] * 3
    assert again.kernels == ranks.merged.kernels
    alone = decodescope("analyze", *paths, "--show", "ranks,communication").out
    assert [alone.count(title) for title in ("3 ranks", "Who waits", "\nKernels")] == [1, 1, 0]
    page = decodescope("export", *paths, "--to", "html", "-o", "-").out
    assert page == decodescope("analyze", *paths, "--format", "html").out


def test_ranks_without_a_common_clock_are_not_merged(decodescope: Command, tmp_path: Path) -> None:
    files = [rank_file(tmp_path, 0), rank_file(tmp_path, 1, base_ns=2 * 10**18)]
    ranks = msgspec.json.decode(decodescope("analyze", *files, "--json").out, type=RanksReport)
    assert ranks.merged is None
    assert "no_common_clock" in {finding.code for finding in ranks.findings}
    done = decodescope("analyze", *files, "--format", "csv")
    assert done.code == 2
    assert "the ranks are not merged" in done.error_line
    for target in ("csv", "chrome"):
        out = tmp_path / "out"
        done = decodescope("export", *files, "--to", target, "-o", str(out))
        assert (done.code, out.exists()) == (2, False)
        assert f"{target}: the ranks are not merged" in done.error_line
    page = str(tmp_path / "page.html")
    assert decodescope("export", *files, "--to", "html", "-o", page).code == 0


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("empty.json", b""),
        ("empty.json.gz", b""),
        ("text.json", b"not a trace"),
        ("other.json", b'{"answer": 42}'),
        ("number.json", b"7"),
        ("cut.json.gz", gzip.compress(b'{"traceEvents": [' + b" " * 4000, mtime=0)[:30]),
        ("broken.dsrec", b"DSREC"),
        ("database.sqlite", b"SQLite format 3\x00" + bytes(4000)),
    ],
)
def test_files_that_are_not_traces(
    decodescope: Command, name: str, data: bytes, tmp_path: Path
) -> None:
    path = tmp_path / name
    path.write_bytes(data)
    done = decodescope("analyze", str(path))
    assert done.code == 2
    assert name in done.only_line


def test_steps_have_the_time_over_their_limits(decodescope: Command, tmp_path: Path) -> None:
    path = str(write_window(tmp_path, "fused+graph"))
    report = msgspec.json.decode(decodescope("analyze", path, "--json").out, type=Report)
    shown = decodescope("analyze", path, "--show", "steps").out
    titles, *rows = shown.split("Steps\n")[1].splitlines()
    assert "over limit" in titles
    for row in rows:
        time_us, over_us = map(int, re.findall(r"(\d+) µs", row)[:2])
        # The KV cache grows, and figures are rounded.
        assert time_us - over_us == pytest.approx(report.answer.limit_ns / 1000, abs=1.5)
