"""Windows of SGLang, whose two profilers end in different ways."""

from pathlib import Path

import pytest

from decodescope.analyzer.errors import MissingRequirement
from decodescope.attach.door import WindowPlan
from decodescope.attach.servers import server_door
from tests.helpers.servers.doors import Serve, door_to, profile_requests
from tests.helpers.servers.engines import Load, Sglang
from tests.helpers.servers.http_server import Reply, Request


@pytest.mark.parametrize("v2", [False, True])
def test_a_window_of_sglang_takes_both_of_its_profilers(
    v2: bool, tmp_path: Path, load: Load, serve: Serve
) -> None:
    sglang = Sglang(v2, load)
    server = serve(sglang)
    plan = WindowPlan(tmp_path / "window", 400)
    window = door_to(server, None).window(plan, lambda line: None)
    assert [path.parent for path in window.traces] == [plan.folder] * 2
    assert ["TP-0" in window.traces[0].name, "TP-1" in window.traces[1].name] == [True, True]
    assert window.observer.door == "sglang"
    assert window.observer.before_tokens_per_s == pytest.approx(1000.0)
    assert window.observer.during_tokens_per_s == pytest.approx(600.0)
    assert window.observer.after_tokens_per_s == pytest.approx(900.0)
    assert not sglang.is_dead
    assert not sglang.waits_for_prefill
    assert profile_requests(server) == (
        ["/start_profile"] if v2 else ["/start_profile", "/stop_profile"]
    )


def test_the_steps_of_sglangs_window_follow_from_its_metrics(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    server = serve(Sglang(load=load))
    door = door_to(server, tmp_path)
    for plan in (WindowPlan(tmp_path, 400), WindowPlan(tmp_path, 400, iterations=7)):
        door.window(plan, lambda line: None)
    first, second = (
        request.body for request in server.requests if request.path == "/start_profile"
    )
    assert b'"num_steps":50,' in first  # 1,000 tokens/s of 8 requests are 125 steps/s
    assert b'"num_steps":7,' in second


def test_sglang_is_never_asked_to_stop_before_its_profiler_is_known(
    tmp_path: Path, load: Load, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stop ends a server of the newer profiler; the window ends by itself."""
    sglang = Sglang(True, load)
    door = door_to(serve(sglang), tmp_path)

    def interrupted(seconds: float) -> None:
        if load.recording:
            raise KeyboardInterrupt

    monkeypatch.setattr(server_door.time, "sleep", interrupted)
    with pytest.raises(KeyboardInterrupt):
        door.window(WindowPlan(tmp_path, 400, 9999), lambda line: None)
    assert not sglang.is_dead
    # A second window at once would end it too.
    with pytest.raises(MissingRequirement, match="the last window has not ended; it ends after"):
        door.window(WindowPlan(tmp_path, 400), lambda line: None)
    assert not sglang.is_dead
    load.clock.now_s += 1000
    door.metrics()
    assert len(door.window(WindowPlan(tmp_path, 400), lambda line: None).traces) == 2


def test_after_a_refusal_sglang_may_be_asked_again(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    sglang, refusals = Sglang(load=load), iter((Reply(b"in progress", 500),))

    def answer(request: Request) -> Reply:
        refusal = next(refusals, None) if request.path == "/start_profile" else None
        return sglang(request) if refusal is None else refusal

    door = door_to(serve(answer), tmp_path)
    with pytest.raises(MissingRequirement, match="answers 500: in progress"):
        door.window(WindowPlan(tmp_path, 400), lambda line: None)
    assert len(door.window(WindowPlan(tmp_path, 400), lambda line: None).traces) == 2


def test_a_window_is_not_lost_by_a_server_that_ends_after_it(
    tmp_path: Path, load: Load, serve: Serve
) -> None:
    sglang = Sglang(load=load)

    def answer(request: Request) -> Reply:
        sglang.is_dead = sglang.is_dead or request.path == "/stop_profile"
        return sglang(request)

    window = door_to(serve(answer), tmp_path).window(WindowPlan(tmp_path, 400), lambda line: None)
    assert len(window.traces) == 2
    assert window.observer.after_tokens_per_s is None
