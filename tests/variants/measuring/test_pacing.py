import time

import pytest
import torch

from decodescope.variants.measuring.measure import RUN_AHEAD_STEPS, step_pacer


def test_host_clock_returns_each_step_at_once() -> None:
    pacer = step_pacer("cpu")
    pacer.before_first()
    time.sleep(0.002)
    first = pacer.after_step()
    second = pacer.after_step()
    assert len(first) == len(second) == 1
    assert first[0] >= 2_000_000
    assert 0 <= second[0] < first[0]
    assert pacer.drain() == []


class FakeEvent:
    """A CUDA event whose completion the test controls; it rejects what a real one rejects."""

    clock_ms = 0.0
    synchronized: list[float]

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.time_ms = -1.0

    def record(self) -> None:
        self.time_ms = FakeEvent.clock_ms

    def synchronize(self) -> None:
        FakeEvent.synchronized.append(self.time_ms)

    def elapsed_time(self, end: "FakeEvent") -> float:
        assert end.time_ms <= max(FakeEvent.synchronized), "this event has not finished"
        return end.time_ms - self.time_ms


@pytest.fixture
def fake_cuda(monkeypatch: pytest.MonkeyPatch) -> type[FakeEvent]:
    FakeEvent.clock_ms = 0.0
    FakeEvent.synchronized = []
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    return FakeEvent


def test_events_never_wait_for_the_newest_step(fake_cuda: type[FakeEvent]) -> None:
    pacer = step_pacer("cuda")
    fake_cuda.clock_ms = 10.0
    pacer.before_first()
    times: list[int] = []
    for step in range(1, 8):
        fake_cuda.clock_ms = 10.0 + step * step
        times += pacer.after_step()
        assert len(times) == max(0, step - RUN_AHEAD_STEPS)
        if fake_cuda.synchronized:
            waited_for_step = round((fake_cuda.synchronized[-1] - 10.0) ** 0.5)
            assert waited_for_step == step - RUN_AHEAD_STEPS
    times += pacer.drain()
    assert times == [(2 * step - 1) * 1_000_000 for step in range(1, 8)]
    assert pacer.drain() == []


def test_starting_again_leaves_out_the_pause(fake_cuda: type[FakeEvent]) -> None:
    pacer = step_pacer("cuda")
    pacer.before_first()
    fake_cuda.clock_ms = 1.0
    pacer.after_step()
    fake_cuda.clock_ms = 500.0
    pacer.before_first()
    fake_cuda.clock_ms = 502.0
    assert pacer.after_step() == []
    assert pacer.drain() == [2_000_000]


@pytest.mark.gpu
def test_event_times_match_a_long_device_loop() -> None:
    pacer = step_pacer("cuda")
    a = torch.randn(4096, 4096, device="cuda", dtype=torch.bfloat16)
    (a @ a).sum()
    torch.cuda.synchronize()
    began_ns = time.perf_counter_ns()
    pacer.before_first()
    times: list[int] = []
    for _ in range(20):
        for _ in range(10):
            a @ a
        times += pacer.after_step()
    times += pacer.drain()
    wall_ns = time.perf_counter_ns() - began_ns
    assert len(times) == 20
    assert min(times) > 0
    assert 0.5 * wall_ns < sum(times) <= 1.05 * wall_ns
