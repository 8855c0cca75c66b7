"""Other settings, single steps and a memory that runs out, in a loop without a model."""

from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.analyzer.protocol.messages import (
    CaptureTrace,
    ChangeSettings,
    Failure,
    Hello,
    Pause,
    Progress,
    Quit,
    Resume,
    Settings,
    State,
    Stats,
    StepOnce,
    SwitchVariant,
    TraceReady,
)
from tests.variants.live.test_live_loop import Run, few_objects_to_look_at  # noqa: F401

TWO = Settings(4, 200, model="two")


def changing(folder: Path, settings: Settings = TWO, *later, end_s: float = 3) -> Run:
    return Run(folder, [(1, ChangeSettings(settings)), *later, (end_s, Quit())])


def test_other_settings_are_answered_by_a_hello_and_then_run(tmp_path):
    run = changing(tmp_path)()
    assert [e for e in run.session.events if not e.startswith("prefill")] == [
        "build eager",
        "release",
        "adopt two batch 4 for eager",
        "build eager",
    ]
    (hello,) = run.channel.of(Hello)
    assert hello.settings == TWO
    assert run.states()[-3:] == [("loading", "eager"), ("building", "eager"), ("running", "eager")]
    assert run.channel.of(Stats)[-1].tokens_per_s == pytest.approx(4e9 / 2_001_000, rel=0.05)
    assert Progress("loading two") in run.channel.of(Progress)
    assert run.channel.of(TraceReady)[-1].capture.batch == 4


def test_refused_settings_leave_what_runs_untouched(tmp_path):
    run = changing(tmp_path)
    run.session.refused["two"] = InputError("two: no such model")
    run()
    (failure,) = run.channel.of(Failure)
    assert (failure.exit_code, failure.fatal) == (2, False)
    assert failure.message == "the settings stay as they were: two: no such model"
    assert not any("adopt" in event or "release" in event for event in run.session.events)
    assert run.states()[-2:] == [("loading", "eager"), ("running", "eager")]
    assert run.times(Stats)[-1] > 2.8e9
    assert not run.channel.of(Hello)


def test_refused_settings_keep_a_pause(tmp_path):
    run = Run(tmp_path, [(1, Pause()), (2, ChangeSettings(TWO)), (3, Quit())])
    run.session.refused["two"] = InputError("no")
    run()
    assert run.states()[-1] == ("paused", "eager")


@pytest.mark.parametrize("what", ["loading", "building"])
def test_settings_that_fail_later_bring_the_old_ones_back(tmp_path, what):
    run = changing(tmp_path)
    if what == "loading":
        run.session.unloadable["two"] = MissingRequirement("out of GPU memory while loading")
    else:
        build = run.session.build

        def build_small(variant, say):
            if run.session.batch == 4:
                raise MemoryError
            return build(variant, say)

        run.session.build = build_small
    run()
    (failure,) = run.channel.of(Failure)
    assert "out of" in failure.message
    assert "\n" not in failure.message
    assert failure.exit_code == 3
    assert run.session.settings.model == "one"
    assert run.channel.of(Hello)[-1].settings.model == "one"
    assert run.states()[-1] == ("running", "eager")
    assert run.channel.of(Stats)[-1].tokens_per_s == pytest.approx(1e9 / 2_001_000, rel=0.05)


def test_where_nothing_runs_other_settings_can(tmp_path):
    run = changing(tmp_path)
    run.session.broken = {"eager"}
    adopt = run.session.adopt

    def adopt_and_repair(settings, variant, say):
        run.session.broken = set()
        adopt(settings, variant, say)

    run.session.adopt = adopt_and_repair
    run()
    assert ("failed", "eager") in run.states()
    assert run.states()[-1] == ("running", "eager")


def test_a_switch_and_settings_that_came_together_both_count(tmp_path):
    run = changing(tmp_path, TWO, (1, SwitchVariant("compiled")))()
    assert "adopt two batch 4 for compiled" in run.session.events
    assert run.states()[-1] == ("running", "compiled")


def test_each_single_step_is_one_step_with_its_own_figures(tmp_path):
    steps = [(2 + number, StepOnce()) for number in range(3)]
    run = Run(tmp_path, [(1, Pause()), *steps, (6, Quit())], new_tokens=3000)()
    paused, *single = [s for at, s in run.channel.sent if isinstance(s, Stats) and at >= 1e9]
    assert [s.position - paused.position for s in single] == [1, 2, 3]
    assert [len(s.text) - len(paused.text) for s in single] == [1, 2, 3]
    assert [s.tokens - paused.tokens for s in single] == [1, 2, 3]
    assert all(s.steps == 1 for s in single)
    assert all(s.step_p50_ns == pytest.approx(2_000_000, rel=0.01) for s in single)
    assert run.states()[-1] == ("paused", "eager")


def test_single_steps_go_on_with_the_next_prompt(tmp_path):
    steps = [(2 + number, StepOnce()) for number in range(8)]
    run = Run(tmp_path, [(1, Pause()), *steps, (12, Quit())], new_tokens=3)()
    single = [s for at, s in run.channel.sent if isinstance(s, Stats) and at >= 2e9]
    positions = [s.position for s in single]
    assert len(positions) == 8
    assert set(positions) == {5, 6, 7}
    assert single[-1].round > single[0].round


def test_a_key_that_is_held_down_steps_as_often_as_it_was_pressed(tmp_path):
    run = Run(tmp_path, [(1, Pause()), *[(2, StepOnce())] * 5, (6, Quit())], new_tokens=3000)()
    single = [s for at, s in run.channel.sent if isinstance(s, Stats) and at >= 2e9]
    assert [s.steps for s in single] == [1] * 5


def test_while_running_a_single_step_is_ignored_and_resuming_forgets_those_that_wait(tmp_path):
    script = [(1, StepOnce()), (2, Pause()), (3, StepOnce()), (3, Resume()), (4, Quit())]
    run = Run(tmp_path, script, new_tokens=3000)()
    assert all(s.steps > 1 for s in run.channel.of(Stats)[1:])


def test_a_window_after_single_steps_is_compared_with_steps_that_followed_each_other(tmp_path):
    steps = [(5 + number, StepOnce()) for number in range(5)]
    script = [(4, Pause()), *steps, (12, CaptureTrace()), (13, Quit())]
    run = Run(tmp_path, script, new_tokens=3000, step_ns=400_000_000)
    run_one = run.loop._decoding.run_one

    def slow_alone():
        run.session.step_ns = 600_000_000
        figures = run_one()
        run.session.step_ns = 400_000_000
        return figures

    run.loop._decoding.run_one = slow_alone
    run()
    assert run.channel.of(Stats)[-1].step_p50_ns == pytest.approx(600_000_000, rel=0.01)
    window = run.channel.of(TraceReady)[-1]
    assert window.requested
    assert window.capture.unprofiled_step_ns == pytest.approx(400_000_000, rel=0.01)
    assert run.states()[-1] == ("paused", "eager")


@pytest.mark.parametrize("asked", [False, True])
def test_out_of_memory_in_a_window_pauses_and_another_variant_can_run(tmp_path, asked):
    script = [(4, SwitchVariant("compiled")), (6, Quit())]
    if asked:
        script.insert(0, (2, CaptureTrace()))
    run = Run(tmp_path, script, new_tokens=3000)
    capture = run.session.capture

    def capture_or_not(variant, *arguments):
        if variant == "eager" and run.session.clock.now_ns >= asked * 2e9:
            raise MemoryError
        return capture(variant, *arguments)

    run.session.capture = capture_or_not
    run()
    (failure,) = run.channel.of(Failure)
    assert failure.message == "variant eager stopped: out of memory"
    assert not failure.fatal
    states = run.states()
    assert states.index(("paused", "eager")) < states.index(("building", "compiled"))
    assert states[-1] == ("running", "compiled")
    assert run.channel.of(State)[-1].state == "running"
    assert run.channel.of(Stats)[-1].variant == "compiled"


def test_out_of_memory_in_a_step_leaves_room_for_other_settings(tmp_path):
    run = changing(tmp_path)
    build = run.session.build

    def build_poisoned(variant, say):
        step = build(variant, say)
        if run.session.batch == 1:
            step.poisoned = MemoryError()
        return step

    run.session.build = build_poisoned
    run()
    assert ("paused", "eager") in run.states()
    assert run.states()[-1] == ("running", "eager")
    assert run.channel.of(Hello)[-1].settings == TWO
