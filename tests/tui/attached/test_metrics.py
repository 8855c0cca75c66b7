"""The metrics of a server in the strip and over time; a server that vanishes or restarts."""

from dataclasses import replace

import pytest

from decodescope.analyzer.reports.user_facts import Given
from tests.helpers.scripted import settle
from tests.helpers.scripted_door import TARGET, metrics

GONE = "http://127.0.0.1:8000: no answer (Connection refused); see whether it runs"


@pytest.fixture
async def pilot(attachment):
    attachment.door.answers = [metrics(1), metrics(2)]
    async with attachment.app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        yield pilot


async def test_rates_make_the_history(attachment) -> None:
    attachment.door.answers = [metrics(1), metrics(2), metrics(4, 5000.0), "stop"]
    async with attachment.app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: bool(attachment.view.attached.problem))
        assert [sample.tokens_per_s for sample in attachment.view.samples] == [1000.0, 1500.0]
        assert " tok/s ─" in attachment.shown
        lines = attachment.shown.splitlines()
        (requests,) = (line for line in lines if " running " in line[60:])
        (latency,) = (line for line in lines if " p50 ms " in line[60:])
        assert requests.split()[1] == latency.split()[1] == "10.0"
        assert "▆" in requests  # 8 of 10
        assert "█" in latency


async def test_the_figures_of_a_server(attachment) -> None:
    attachment.door.answers = [metrics(1), metrics(2), "stop"]
    async with attachment.app.run_test(size=(140, 40)) as pilot:
        await attachment.until(pilot, lambda: bool(attachment.view.attached.problem))
        text = " ".join(attachment.shown.split())
        for figure in ("1,000 tok/s", "8 running", "3 waiting", "KV 25.0 %", "prefill 250 tok/s"):
            assert figure in text
        assert "inter-token p50 10.0 ms p99 19.8 ms" in text


async def test_a_process_has_no_figures(attachment) -> None:
    async with attachment.app.run_test(size=(120, 40)) as pilot:
        await attachment.until(pilot, lambda: attachment.view.attached.is_known)
        assert attachment.door.asked == 1
        assert "tok/s" not in attachment.shown
        assert not attachment.view.samples


async def test_a_server_vanishes_and_returns(attachment, pilot) -> None:
    attachment.door.answers = [GONE]
    await attachment.until(pilot, lambda: bool(attachment.view.attached.problem))
    attachment.door.answers = [GONE.replace("refused", "timed out")]
    attachment.clock.now += 12
    attachment.app.paint()
    await settle(pilot)
    assert "no answer for 12 s" in attachment.shown.splitlines()[0]
    assert GONE in attachment.shown
    assert sum(GONE in line.text for line in attachment.view.log) == 1
    attachment.door.answers = [metrics(14)]
    await attachment.until(pilot, lambda: not attachment.view.attached.problem)
    assert "no answer" not in attachment.shown
    assert GONE not in attachment.shown
    assert any("answers again after 12 s" in line.text for line in attachment.view.log)


async def test_a_restart_is_said(attachment, pilot) -> None:
    attachment.door.answers = [metrics(20, 5.0)]
    await attachment.until(pilot, lambda: attachment.view.banner is not None)
    assert "The server restarted" in attachment.shown
    assert all(sample.tokens_per_s >= 0 for sample in attachment.view.samples)


@pytest.mark.parametrize("silent", [True, False])
async def test_a_server_that_serves_another_model_since_is_named_anew(
    attachment, pilot, silent: bool
) -> None:
    if silent:
        attachment.door.answers = [GONE]
        await attachment.until(pilot, lambda: bool(attachment.view.attached.problem))
    attachment.door.becomes = (TARGET.replace("tiny", "chat"), "gpt-oss-20b")
    attachment.door.answers = [metrics(14) if silent else metrics(20, 5.0)]
    await attachment.until(pilot, lambda: "serving chat" in attachment.view.attached.target.name)
    assert "serving chat" in attachment.shown.splitlines()[0]
    assert "serving tiny" not in attachment.shown
    assert attachment.app._feeds.shown.source.given.model.shape.name == "openai/gpt-oss-20b"
    named = [line.text for line in attachment.view.log if line.text.startswith("attached to")]
    assert named == [f"attached to {TARGET}", f"attached to {attachment.door.name}"]


async def test_no_limit_stays_that_after_a_restart(attachment, pilot) -> None:
    feed = attachment.app._feeds.shown
    feed.source = replace(feed.source, given=Given(guess=False))
    attachment.door.becomes = (TARGET.replace("tiny", "chat"), "gpt-oss-20b")
    attachment.door.answers = [metrics(20, 5.0)]
    await attachment.until(pilot, lambda: "serving chat" in attachment.shown)
    assert feed.source.given == Given(guess=False)


async def test_it_is_asked_less_often_while_it_does_not_answer(attachment, monkeypatch) -> None:
    waits: list[float] = []
    attachment.door.answers = [GONE]

    def wait(seconds: float) -> bool:
        waits.append(seconds)
        return len(waits) > 12

    monkeypatch.setattr(attachment.link._closing, "wait", wait)
    await attachment.link.start()
    attachment.link._metrics.result()
    assert waits[0] == 0.0
    assert waits[1:4] == [0.01, 0.02, 0.04]
    assert max(waits) == waits[-1] == 5.0
