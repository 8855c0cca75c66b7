"""The worker's loop, driven by fakes whose time passes only when they step."""

import gc
import json
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import (
    AppMessage,
    CaptureTrace,
    Failure,
    Log,
    Pause,
    Quit,
    Resume,
    State,
    Stats,
    SwitchVariant,
    TraceReady,
)
from decodescope.variants.live import loop
from decodescope.variants.live.channel import ChannelClosed
from decodescope.variants.live.loop import LiveLoop
from decodescope.variants.live.windows import MAX_SHARE_OF_TIME, WindowFiles
from tests.helpers import fake_session as fakes


@pytest.fixture(autouse=True)
def few_objects_to_look_at(monkeypatch):
    """The loop collects garbage several times, and a test session holds the objects of hundreds of
    modules: 0.2 s each time. Here what is frozen stays so, as these steps hold no memory."""
    frozen = vars(gc) | {"unfreeze": lambda: None}
    monkeypatch.setattr(loop, "gc", SimpleNamespace(**frozen))
    gc.freeze()
    yield
    gc.freeze()


class Run:
    """One scripted run of the loop, and its messages."""

    def __init__(self, folder: Path, script: list[tuple[float, AppMessage]], **session) -> None:
        self.session = fakes.FakeSession(**session)
        self.channel = fakes.ScriptedChannel(self.session.clock, script)
        self.loop = LiveLoop(
            self.session, self.channel, WindowFiles(folder), clock_ns=self.session.clock
        )

    def __call__(self, variant: str = "eager"):
        self.loop.run(variant)
        return self

    def states(self) -> list[tuple[str, str]]:
        return [(state.state, state.variant) for state in self.channel.of(State)]

    def times(self, kind: type) -> list[int]:
        return [at for at, message in self.channel.sent if isinstance(message, kind)]


def test_figures_describe_the_unprofiled_steps_and_come_at_a_steady_pace(tmp_path):
    run = Run(tmp_path, [(3, Quit())], batch=4, new_tokens=1000)()
    stats = run.channel.of(Stats)
    assert 20 <= len(stats) <= 31
    assert all(b - a >= 100_000_000 for a, b in pairwise(run.times(Stats)))
    assert [s.seq for s in stats] == list(range(1, len(stats) + 1))
    for s in stats[1:]:
        assert s.step_p50_ns == pytest.approx(2_001_000, abs=3_000)
        assert s.tokens_per_s == pytest.approx(4e9 / 2_001_000, rel=0.02)
    assert max(s.steps for s in stats) == pytest.approx(500, abs=2)
    assert all(s.bytes_per_step == 1_000 + 10 * s.position for s in stats)
    assert all(s.tokens == 4 * (1 + s.position - 4) for s in stats if s.round == 1)
    assert stats[-1].tokens > 4 * 1000


def test_polls_are_rare(tmp_path):
    run = Run(tmp_path, [(1, Quit())], step_ns=100_000, new_tokens=100_000)()
    assert 40 <= run.channel.receives <= 51


def test_rounds_restart_the_prompt_and_the_text(tmp_path):
    run = Run(tmp_path, [(1, Quit())], new_tokens=120)()
    assert [e for e in run.session.events if e.startswith("prefill")][:3] == [
        "prefill [0, 1, 2, 3]",
        "prefill [1, 1, 2, 3]",
        "prefill [2, 1, 2, 3]",
    ]
    stats = run.channel.of(Stats)
    assert max(s.round for s in stats) >= 4
    assert max(s.position for s in stats) <= 4 + 120
    whole = "".join(chr(ord("a") + position % 26) for position in range(4, 125))
    assert any(stats.text for stats in stats)
    assert all(whole.startswith(s.text) for s in stats)


def test_text_appears_even_when_rounds_are_shorter_than_the_publishing_interval(tmp_path):
    run = Run(tmp_path, [(1, Quit())], new_tokens=10)()
    assert all(s.text for s in run.channel.of(Stats)[1:])


def test_a_workload_of_one_token_still_steps(tmp_path):
    run = Run(tmp_path, [(1, Quit())], new_tokens=1)()
    assert run.channel.of(Stats)[-1].steps > 100
    assert run.channel.of(TraceReady)[0].capture.steps == 1


def test_windows_come_soon_then_rarely_and_do_not_affect_the_figures(tmp_path):
    run = Run(tmp_path, [(22, Quit())], new_tokens=3000)()
    windows, times = run.channel.of(TraceReady), run.times(TraceReady)
    assert times[0] <= 100_000_000
    assert all(b - a >= 5_000_000_000 for a, b in pairwise(times))
    assert len(windows) == 5
    assert not any(window.requested for window in windows)
    info = windows[-1].capture
    assert info.steps == 3
    assert info.unprofiled_step_ns == pytest.approx(2_001_000, abs=3_000)
    profiled = json.loads(Path(windows[-1].path).read_text())
    assert profiled["ns"] >= 3 * 3 * 2_000_000
    assert all(s.step_p99_ns < 2_100_000 for s in run.channel.of(Stats))


def test_an_interpreted_variant_has_text_but_neither_rates_nor_windows(tmp_path):
    script = [(5, CaptureTrace()), (10, SwitchVariant("eager")), (20, Quit())]
    run = Run(tmp_path, script, new_tokens=3000)("fused")
    interpreted = [stats for stats in run.channel.of(Stats) if stats.variant == "fused"]
    timed = [stats for stats in run.channel.of(Stats) if stats.variant == "eager"]
    assert len(interpreted) > 50
    assert {stats.rates for stats in interpreted} == {None}
    assert interpreted[-1].text
    assert interpreted[-1].tokens > 4_000
    assert None not in [stats.rates for stats in timed]
    windows = run.channel.of(TraceReady)
    assert {window.capture.variant for window in windows} == {"eager"}
    assert not any(window.requested for window in windows)
    warning = "window not captured: Triton's interpreter runs fused here"
    assert [log.text for log in run.channel.of(Log)] == [warning]


def test_costly_windows_take_a_bounded_share_of_the_time(tmp_path):
    run = Run(tmp_path, [(120, Quit())], step_ns=50_000_000, new_tokens=10_000)()
    times = run.times(TraceReady)
    cost = 3 * 3 * 50_000_000
    assert len(times) >= 3
    assert all(b - a >= cost / MAX_SHARE_OF_TIME for a, b in pairwise(times))


def test_only_the_last_window_files_are_kept_and_numbers_go_on(tmp_path):
    (tmp_path / "window-0007.json").write_text("an earlier worker's")
    run = Run(tmp_path, [(40, Quit())], new_tokens=3000)()
    names = [Path(window.path).name for window in run.channel.of(TraceReady)]
    assert names[0] == "window-0008.json"
    assert len(names) > 5
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert kept == ["window-0007.json", *names[-4:]]


def test_a_requested_window_comes_at_once_and_says_so(tmp_path):
    run = Run(tmp_path, [(2, CaptureTrace()), (3, Quit())], new_tokens=3000)()
    requested = [
        (at, message)
        for at, message in run.channel.sent
        if isinstance(message, TraceReady) and message.requested
    ]
    assert len(requested) == 1
    assert requested[0][0] <= 2.1e9
    assert ("capturing", "eager") in run.states()
    assert run.states()[-1] == ("running", "eager")


def test_a_window_can_be_captured_while_paused(tmp_path):
    script = [(1, Pause()), (10, CaptureTrace()), (11, Quit())]
    run = Run(tmp_path, script, new_tokens=3000)()
    assert run.states()[-3:] == [("paused", "eager"), ("capturing", "eager"), ("paused", "eager")]
    assert [w.requested for w in run.channel.of(TraceReady)] == [False, True]


def test_pausing_sleeps_and_figures_leave_the_pause_out(tmp_path):
    run = Run(tmp_path, [(1, Pause()), (60, Resume()), (62, Quit())], new_tokens=3000)()
    assert run.states() == [
        ("building", "eager"),
        ("running", "eager"),
        ("paused", "eager"),
        ("running", "eager"),
    ]
    assert run.channel.waits == 1
    assert all(at < 1.1e9 or at >= 60e9 for at in run.times(Stats))
    assert all(s.step_p99_ns < 2_100_000 for s in run.channel.of(Stats))


def test_the_last_figures_before_a_pause_hold_all_the_text(tmp_path):
    run = Run(tmp_path, [(1, Pause()), (2, Quit())], new_tokens=3000)()
    last = run.channel.of(Stats)[-1]
    assert len(last.text) == last.position - 4 + 1


def test_switching_frees_the_old_variant_first_and_starts_again(tmp_path):
    run = Run(tmp_path, [(1, SwitchVariant("compiled")), (2, Quit())], new_tokens=3000)()
    events = [e for e in run.session.events if not e.startswith("prefill")]
    assert events == ["build eager", "release", "build compiled"]
    assert run.states()[-2:] == [("building", "compiled"), ("running", "compiled")]
    after = [s for s in run.channel.of(Stats) if s.variant == "compiled"]
    assert after[0].round == 1
    assert after[0].tokens > run.channel.of(Stats)[0].tokens
    assert run.channel.of(TraceReady)[-1].capture.variant == "compiled"


def test_of_several_waiting_switches_only_the_last_is_built(tmp_path):
    script = [(1, SwitchVariant("compiled")), (1, SwitchVariant("other")), (2, Quit())]
    run = Run(tmp_path, script)()
    assert [e for e in run.session.events if "build" in e] == ["build eager", "build other"]


def test_switching_to_the_current_variant_does_nothing(tmp_path):
    run = Run(tmp_path, [(1, SwitchVariant("eager")), (2, Quit())])()
    assert run.states() == [("building", "eager"), ("running", "eager")]


def test_an_unknown_variant_leaves_the_current_one_running(tmp_path):
    run = Run(tmp_path, [(1, SwitchVariant("nonsense")), (2, Quit())])()
    assert run.channel.of(Failure) == [Failure("unknown variant 'nonsense'", 2, False)]
    assert run.states()[-1] == ("running", "eager")
    assert run.times(Stats)[-1] > 1.8e9


def test_an_unknown_first_variant_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="nonsense"):
        Run(tmp_path, [])("nonsense")


def test_a_failing_build_returns_to_the_previous_variant(tmp_path, capsys):
    run = Run(tmp_path, [(1, SwitchVariant("compiled")), (2, Quit())])
    run.session.broken = {"compiled"}
    run()
    (failure,) = run.channel.of(Failure)
    assert not failure.fatal
    assert "compiled" in failure.message
    assert "\n" not in failure.message
    assert run.states()[-2:] == [("building", "eager"), ("running", "eager")]
    assert run.channel.of(Stats)[-1].variant == "eager"
    assert "second line" in capsys.readouterr().err


def test_without_a_previous_variant_the_loop_waits_for_another_choice(tmp_path):
    script = [(1, Resume()), (2, CaptureTrace()), (3, SwitchVariant("other")), (4, Quit())]
    run = Run(tmp_path, script)
    run.session.broken = {"eager"}
    run()
    assert run.states() == [
        ("building", "eager"),
        ("failed", "eager"),
        ("building", "other"),
        ("running", "other"),
    ]


def test_out_of_memory_in_a_step_pauses_and_resume_tries_again(tmp_path):
    script = [(1, SwitchVariant("other")), (5, Resume()), (6, Quit())]
    run = Run(tmp_path, script)
    build = run.session.build

    def build_poisoned(variant, say):
        step = build(variant, say)
        if variant == "other":
            step.poisoned = MemoryError()
        return step

    run.session.build = build_poisoned
    run()
    (failure,) = run.channel.of(Failure)
    assert (failure.exit_code, failure.fatal) == (3, False)
    assert run.states()[-2:] == [("paused", "other"), ("running", "other")]
    assert run.channel.of(Stats)[-1].variant == "other"


def test_an_unexpected_error_in_a_step_ends_the_loop(tmp_path):
    run = Run(tmp_path, [(9, Quit())])
    build = run.session.build

    def build_poisoned(variant, say):
        step = build(variant, say)
        step.poisoned = RuntimeError("an illegal memory access")
        return step

    run.session.build = build_poisoned
    with pytest.raises(RuntimeError, match="illegal"):
        run()


def test_a_window_that_cannot_be_written_is_reported_and_the_run_continues(tmp_path):
    run = Run(tmp_path, [(12, Quit())], new_tokens=3000)
    run.session.capture_error = InputError("window.json: cannot be written (No space left)")
    run()
    warnings = run.channel.of(Log)
    assert 2 <= len(warnings) <= 3
    assert "No space left" in warnings[0].text
    assert run.times(Stats)[-1] > 11.8e9


def test_a_full_channel_loses_only_statistics(tmp_path):
    run = Run(tmp_path, [(2, Quit())], new_tokens=3000)
    send_stats, calls = run.channel.send_stats, []

    def send_some(stats):
        calls.append(stats)
        run.channel.full = 5 <= len(calls) < 10
        return send_stats(stats)

    run.channel.send_stats = send_some
    run()
    got = run.channel.of(Stats)
    assert [s.seq for s in got] == [s.seq for s in calls if not 5 <= s.seq < 10]
    assert got[3].dropped == 0
    assert got[4].dropped == 5


def test_the_end_of_the_app_ends_the_loop_and_restores_the_collector(tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "gc", gc)
    run = Run(tmp_path, [])
    receive = run.channel.receive

    def hang_up_later():
        if run.session.clock.now_ns > 1e9:
            raise ChannelClosed
        assert not gc.isenabled()
        return receive()

    run.channel.receive = hang_up_later
    with pytest.raises(ChannelClosed):
        run()
    assert gc.isenabled()
    assert gc.get_freeze_count() == 0
