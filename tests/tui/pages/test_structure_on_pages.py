"""Layers, roles and interruptions: on each page that shows them, of a trace without ranges
of its model."""

import re
from pathlib import Path

import numpy as np
import pytest
from syrupy.assertion import SnapshotAssertion

from decodescope.analyzer import Analysis, analyze
from decodescope.analyzer.chrome.chrome_export import export_chrome
from decodescope.analyzer.names.rules import ROLES
from decodescope.analyzer.reports.gap_list import longest_first
from decodescope.analyzer.text.formatting import count, duration
from decodescope.analyzer.tracks.build import find_tracks
from decodescope.analyzer.vocabulary.words import part_words
from decodescope.tui.background import analyse_files
from decodescope.tui.model.describe import gap_lines, range_detail_lines
from decodescope.tui.model.kernel_details import kernel_lines, op_lines
from decodescope.tui.model.look import look_at
from decodescope.tui.model.picks import GapPick, OpPick, SpanPick
from decodescope.tui.model.view import Window
from decodescope.tui.panels.answer import AnswerPanel
from decodescope.tui.panels.gap_list import GapRows
from decodescope.tui.panels.range_tree import RangeTreePanel
from tests.helpers.app.looks import ONE_LOOK, Looks, after
from tests.helpers.app.recorded import BRUSHES, app_of, drawn, press, view_of, window
from tests.helpers.foreign.layered import LAYER, interrupted, layered, slow_layered
from tests.helpers.hostile import HOSTILE, unsafe
from tests.helpers.kineto_events import document, op
from tests.helpers.scripted import settle, text_of

PAGES = range(1, 7)


def window_of(analysis: Analysis) -> Window:
    return Window(Path("trace.json"), analysis, find_tracks(analysis), 0.0)


@pytest.fixture(scope="module")
def slow() -> Window:
    return window_of(analyze(interrupted(slow_layered())))


@pytest.fixture
def inferred(tmp_path: Path) -> Path:
    path = tmp_path / "layered.json"
    path.write_bytes(document(layered(steps=3)))
    return path


def said(lines) -> dict[str, str]:
    return {line.label: line.text for line in lines}


def test_inferred_ranges_are_slanted_and_said_to_be(inferred: Path) -> None:
    view = view_of(analyse_files([inferred], 0.0))
    panel = RangeTreePanel(BRUSHES[0], view)
    assert panel._title == "Ranges per step, inferred from kernel names where slanted"
    rows = panel._shown
    for row, line in enumerate(rows.lines):
        cells = rows.cells(row, BRUSHES[0], 60)
        of_key = {column.key: cell for column, cell in zip(rows.columns, cells, strict=True)}
        name, attributed = of_key["path"], of_key["confidence"]
        is_inferred = line.range.path != "step"
        assert name.style.italic == (True if is_inferred else None)
        assert attributed.text == ("inferred" if is_inferred else "exact")
    plain = RangeTreePanel(BRUSHES[2], view)
    assert plain._title == "Ranges per step, inferred from kernel names where ~"
    lines = drawn(RangeTreePanel, view, BRUSHES[2], 120, 30)
    assert any("~layer.* \u00d74" in line for line in lines)
    assert not any("~step" in line for line in lines)


def test_details_of_an_inferred_layer(inferred: Path) -> None:
    shown = analyse_files([inferred], 0.0)
    folded = said(range_detail_lines(shown, "step/layer.*"))
    assert folded["layers"] == "4, 1 motif: 4 of 10 ops"
    assert folded["roles"] == "norm 20.0 %, qkv 10.0 %, rope 10.0 %, kv_write 10.0 %, 5 more"
    assert folded["confidence"] == "inferred: by the names of kernels and their order in the step"
    one = list(range_detail_lines(shown, "step/layer.2"))
    assert any(line.text.startswith("inferred from kernel names") for line in one)
    assert said(one)["layer"] == "2 of 4 (from 0), 10 ops"
    role = said(range_detail_lines(shown, "step/layer.2/qkv"))
    assert role["role"] == "qkv, known by place"
    assert "layer" not in role
    assert (
        said(range_detail_lines(shown, "step/layer.*/attention"))["role"]
        == "attention, known by name"
    )


def test_details_of_a_range_of_the_model_name_its_roles_but_infer_nothing() -> None:
    shown = said(range_detail_lines(window("eager"), "decode_step/model/layer.*"))
    assert shown["roles"].startswith("norm ")
    assert "layers" not in shown
    assert shown["confidence"].startswith("exact")


def test_details_of_kernels_and_ops_say_their_role(inferred: Path) -> None:
    shown = analyse_files([inferred], 0.0)
    assert said(kernel_lines(shown, "cutlass_gemm_qkv"))["role"] == "qkv, known by place"
    norm = said(kernel_lines(shown, "fused_add_rms_norm_kernel"))
    assert norm["role"] == "norm, known by name"
    row = 1 + len(LAYER) + LAYER.index("flash_fwd_splitkv_kernel")
    op = said(op_lines(shown, row))
    assert (op["role"], op["layer"]) == ("attention, known by name", "1 of 4 (from 0), 10 ops")
    assert "layer" not in said(op_lines(shown, 0))


def test_a_kernel_of_several_roles_says_how_often_it_has_each(tmp_path: Path) -> None:
    events = layered(steps=2)
    for one in events:
        one["name"] = re.sub(r"cutlass_gemm_\w+", "cutlass_gemm", one["name"])
    path = tmp_path / "one_product.json"
    path.write_bytes(document(events))
    shown = analyse_files([path], 0.0)
    role = said(kernel_lines(shown, "cutlass_gemm"))["role"]
    counts = dict(re.findall(r"(\w+) (\d+) \u00d7", role))
    assert counts == {"qkv": "8", "o": "8", "gate_up": "8", "down": "8", "head": "2"}
    assert role.endswith("known by place")
    within = said(kernel_lines(shown, "cutlass_gemm", "step/layer.0"))["role"]
    assert dict(re.findall(r"(\w+) (\d+) \u00d7", within)) == {
        "qkv": "2",
        "o": "2",
        "gate_up": "2",
        "down": "2",
    }


def test_unknown_roles_are_not_mentioned(tmp_path: Path) -> None:
    path = tmp_path / "none.json"
    path.write_bytes(document([op(0, 10, name="mystery"), op(20, 30, name="mystery")]))
    shown = analyse_files([path], 0.0)
    assert "role" not in said(kernel_lines(shown, "mystery"))
    assert not {"role", "layer"} & set(said(op_lines(shown, 0)))
    lines = drawn(AnswerPanel, view_of(shown), BRUSHES[0], 80, 5)
    assert lines[0].startswith("no steps · 30 ns in all")
    assert not any("a step has" in line for line in lines)


def test_the_answer_ends_with_the_layers_and_interruptions(slow: Window) -> None:
    panel = AnswerPanel(BRUSHES[0], view_of(slow))
    layers = panel._data.reasons[-1]
    assert layers.startswith("a step has 2 layers (2 of 10 ops), 1 op before and 3 after them")
    copied = panel.as_text(panel._data)
    assert layers in copied
    assert copied[-1] == "set apart: 663 ms of interruptions"
    lines = drawn(AnswerPanel, view_of(slow), BRUSHES[0], 120, 30)
    assert lines[-1].startswith("set apart: 663 ms of interruptions")
    assert not any(layers in line for line in lines)
    panel.action_fold()
    rows = panel.draw(panel._data, 120, 30).rows
    assert any(layers in "".join(one.text for one in row.segments) for row in rows)


def test_a_vllm_step_has_layers_and_roles_on_the_pages(foreign_traces: Path) -> None:
    shown = analyse_files([foreign_traces / "mi300x_vllm_decode_graph.json.gz"], 0.0)
    step = "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk*sqsq32sqsk*)"
    tracks = {track.key.level: track for track in shown.tracks.tracks if track.key.kind == "range"}
    names = [
        [shown.tracks.names[label] for label in tracks[level].slices.label.tolist()]
        for level in (1, 2)
    ]
    assert [name for name in names[0] if name.startswith("layer")] == [
        f"layer.{number}" for number in range(24)
    ]
    assert {"qkv", "attention", "experts", "router"} <= set(names[1])
    folded = said(range_detail_lines(shown, f"{step}/layer.*"))
    assert folded["layers"] == "24, 2 motifs: 12 of 17 ops, 12 of 18 ops"
    assert folded["roles"].startswith("experts ")
    odd = said(range_detail_lines(shown, f"{step}/layer.1"))
    assert odd["layer"] == "1 of 24 (from 0), 18 ops, motif 2 of 2"
    name = next(k.name for k in shown.report.kernels if "unified_attention_3d" in k.name)
    assert said(kernel_lines(shown, name))["role"] == "attention, known by name"


# Interruptions


def test_a_track_shows_interruptions(slow: Window) -> None:
    tracks = slow.tracks
    titles = [track.title for track in tracks.tracks]
    assert titles[-2:] == ["gaps", "interr."]
    track, place = tracks.tracks[-1], len(titles) - 1
    found = list(zip(track.slices.start_ns.tolist(), track.slices.end_ns.tolist(), strict=True))
    assert found == [(one.start_ns, one.end_ns) for one in slow.analysis.interruptions]
    names = [tracks.names[label] for label in track.slices.label.tolist()]
    assert names == ["interruption: wait", "interruption: long op"]
    assert [tracks.path(label) for label in track.slices.label.tolist()] == [None, None]
    gap, long_op = (look_at(tracks, 40).pick_of(place, number) for number in range(2))
    assert isinstance(gap, GapPick)
    assert slow.analysis.gaps.length_ns[gap.row] == slow.analysis.gaps.length_ns.max()
    assert isinstance(long_op, OpPick)
    assert slow.analysis.trace.ops.length_ns[long_op.row] > 200_000_000
    clean = window_of(analyze(slow_layered()))
    assert "interr." not in [track.title for track in clean.tracks.tracks]


def test_pieces_of_one_interrupted_gap_each_lead_to_it(slow: Window) -> None:
    """Whatever lies in no gap and in no op is a span of time."""
    for number in range(len(slow.analysis.interruptions)):
        pick = look_at(slow.tracks, 40).pick_of(len(slow.tracks.tracks) - 1, number)
        assert not isinstance(pick, SpanPick)


def test_details_of_an_interrupted_gap_name_the_cause(slow: Window) -> None:
    gaps = slow.analysis.gaps
    longest = int(gaps.length_ns.argmax())
    lines = said(gap_lines(slow, longest))
    interruption = slow.report.interruptions[0]
    assert lines["interruption"] == f"wait, {duration(interruption.ns)}: {interruption.evidence}"
    assert lines["→"] == "an interruption: it is set apart, and in no figure of a step"
    other = said(gap_lines(slow, 0))
    assert "interruption" not in other
    assert not other["→"].startswith("an interruption")


def test_interrupted_gaps_are_marked_found_and_filtered(slow: Window) -> None:
    every = np.arange(len(slow.analysis.gaps))
    rows = GapRows(slow, longest_first(slow.analysis, every))
    marked = [
        row
        for row in range(len(rows))
        if rows.cells(row, BRUSHES[0], 40)[0].text.startswith("interrupted, ")
    ]
    assert marked == [0]
    assert rows.matching(re.compile("interruption")) == {0}
    assert rows.matching(re.compile("wait$")) >= {0}
    assert rows.text(0).endswith("interruption: wait")
    assert len(rows.matching(re.compile("fused_add"))) > 1


# Parts


@pytest.mark.parametrize("variant", ["eager", "fused+graph"])
def test_parts_have_the_figures_of_the_report(variant: str) -> None:
    shown = window(variant)
    lines = drawn(AnswerPanel, view_of(shown), BRUSHES[2], 180, 40)
    place = next(place for place, line in enumerate(lines) if "over the limit" in line)
    head = lines[place]
    assert head.split()[-7:] == ["of", "limit", "%", "GB/s", "ops", "known", "by"]
    parts = shown.report.answer.parts
    lines = lines[place + 1 :][: len(parts)]
    for line, part in zip(lines, parts, strict=True):
        assert part_words(part.part) in line
        assert f" {duration(part.ns)} " in line
        assert not part.ops or f" {count(part.ops)} " in line
        assert line.rstrip().endswith(("name", "place")) == (part.confidence != "none")


# Names are data


def hostile_file(folder: Path) -> Path:
    path = folder / "hostile.json"
    export_chrome(analyze(interrupted(slow_layered(HOSTILE))), path)
    return path


def test_the_hostile_trace_has_layers_and_interruptions(tmp_path: Path) -> None:
    report = analyse_files([hostile_file(tmp_path)], 0.0).report
    assert report.structure.layers == 2
    assert {one.cause for one in report.interruptions} == {"wait", "long_op"}
    known = {part.part for part in report.answer.parts if part.confidence != "none"}
    assert known <= set(ROLES)


@pytest.mark.parametrize("size", [(60, 16), (80, 24), (160, 50)])
async def test_every_page_shows_hostile_kernels_with_roles_as_text(tmp_path: Path, size) -> None:
    app = app_of(hostile_file(tmp_path))
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        for page in PAGES:
            await press(pilot, str(page), "g", "enter", "down")
            assert unsafe(text_of(app)) == ""
            await press(pilot, "y")
            assert unsafe(app.clipboard.replace("\t", "")) == ""


async def test_how_it_looks(snapshot: SnapshotAssertion, tmp_path: Path) -> None:
    path = tmp_path / "held.json"
    export_chrome(analyze(interrupted(slow_layered())), path)
    stops = {"2 held": after("2", "G"), "4 held": after("4"), "6 held": after("6")}
    await Looks(snapshot, ONE_LOOK).walk(lambda traits: app_of(path, traits), stops)


async def test_inferred_ranges_look_so(snapshot: SnapshotAssertion, inferred: Path) -> None:
    stops = {"5 inferred": after("5", "down", "down")}
    await Looks(snapshot, ONE_LOOK).walk(lambda traits: app_of(inferred, traits), stops)
