"""The app over a process that speaks libkineto's protocol."""

from pathlib import Path

from decodescope.attach.door import WindowPlan
from decodescope.attach.kineto.kineto_door import KinetoDoor
from decodescope.attach.kineto.processes import read_process
from decodescope.attach.kineto.window_config import Timing
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.link.attached import AttachLink
from decodescope.tui.model.sources import AttachSource
from tests.helpers.libkineto import fake_process
from tests.helpers.sockets import socket_folder

__all__ = ["socket_folder"]
QUICK = Timing(poll_s=1.0, lead_s=0.2, refused_s=0.0, silent_s=5.0, trace_s=5.0, iterations_s=1.0)


async def test_windows_of_a_process(attachment, socket_folder: str, tmp_path: Path) -> None:
    traces, out = tmp_path / "traces", tmp_path / "out"
    traces.mkdir()
    out.mkdir()
    variables = {"KINETO_ONDEMAND_TRACE_DIR": str(traces)}
    with fake_process(socket_folder, "traces", **variables) as running:
        process = read_process(running.pid)
        assert process is not None
        door = KinetoDoor([process], dynolog_port=1, timing=QUICK)
        attachment.link = AttachLink(door, WindowPlan(out, 50))
        source = AttachSource(attachment.link)
        attachment.app = DecodescopeApp(source, None, attachment.clock, out)
        async with attachment.app.run_test(size=(100, 30)) as pilot:
            await attachment.until(pilot, lambda: attachment.view.attached.is_known)
            assert f"process {running.pid}" in attachment.shown.splitlines()[0]
            await attachment.take(pilot, 1)
            assert len(attachment.view.window.report.steps) == 50
            assert "Where the step goes" in attachment.shown
            running.kill()
            await pilot.press("t")
            await attachment.until(pilot, lambda: not attachment.view.attached.stage)
            assert "ended" in attachment.shown
            assert attachment.view.window is not None
    assert [path.suffix for path in out.iterdir()] == [".json"]
    assert list(traces.iterdir()) == []
