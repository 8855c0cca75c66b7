"""The worker's end of the socket: control messages are never lost, statistics may be."""

import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.protocol.messages import (
    MAX_FRAME_BYTES,
    AppMessage,
    Bye,
    CaptureTrace,
    Failure,
    FrameDecoder,
    Heartbeat,
    Log,
    Pause,
    Progress,
    Quit,
    Resume,
    State,
    Stats,
    SwitchVariant,
    WorkerMessage,
    encode_frame,
)
from decodescope.variants.live.channel import Channel, ChannelClosed


def stats(seq: int, dropped: int = 0, text: str = "") -> Stats:
    return Stats(seq, dropped, "eager", seq, 1, 1, 1, 1.0, 1, 1, 1, text)


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, Channel]]:
    app, worker = socket.socketpair()
    with app, worker:
        worker.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        yield app, Channel(worker)


def receive_all(app: socket.socket, channel: Channel) -> list[object]:
    """What the app reads until the channel has nothing left to send."""
    app.setblocking(False)
    decoder, messages = FrameDecoder(WorkerMessage), []
    for _ in range(10_000):
        channel.flush(0.0)
        channel.receive()
        try:
            messages += decoder.feed(app.recv(777))
        except BlockingIOError:
            break
    assert not decoder._buffer
    return messages


def test_control_messages_survive_a_full_socket_and_statistics_are_counted(ends):
    app, channel = ends
    big = "x" * 1500
    sent: list[object] = []
    dropped = 0
    for seq in range(60):
        message = stats(seq, dropped, big)
        if channel.send_stats(message):
            sent.append(message)
        else:
            dropped += 1
        assert channel.dropped == dropped
        if seq % 10 == 9:
            control = Log("info", f"{seq} {big}")
            channel.send(control)
            sent.append(control)
    assert 0 < dropped < 60
    assert receive_all(app, channel) == sent
    assert channel.send_stats(stats(99, dropped))


def test_messages_of_the_app_arrive_whole_and_silence_is_an_empty_list(ends):
    app, channel = ends
    assert channel.receive() == []
    frame = encode_frame(SwitchVariant("compiled"))
    app.sendall(encode_frame(Pause()) + frame[:3])
    assert channel.receive() == [Pause()]
    app.sendall(frame[3:])
    assert channel.wait() == [SwitchVariant("compiled")]


def test_the_end_of_the_app_closes_the_channel(ends):
    app, channel = ends
    channel.send(Log("info", "x" * 100_000))
    app.close()
    for call in (channel.receive, channel.wait, lambda: channel.send_stats(stats(1))):
        with pytest.raises(ChannelClosed):
            call()
    channel.flush(0.1)


names = st.text(max_size=20)
app_messages = st.one_of(
    st.builds(SwitchVariant, names),
    *(st.builds(kind) for kind in (Pause, Resume, CaptureTrace, Quit)),
)
worker_messages = st.one_of(
    st.builds(Progress, names, names),
    st.builds(State, st.sampled_from(["running", "paused"]), names),
    st.builds(stats, st.integers(0, 2**40), st.integers(0, 9), st.text()),
    st.builds(Failure, names, st.integers(0, 3), st.booleans()),
    st.builds(Bye, names),
)


def chunks(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    return [data[a:b] for a, b in pairwise(edges)]


@pytest.mark.parametrize(
    ("union", "strategy"), [(AppMessage, app_messages), (WorkerMessage, worker_messages)]
)
def test_framing_does_not_depend_on_the_chunking(union, strategy):
    @given(st.lists(strategy, max_size=8), st.lists(st.integers(0, 500), max_size=30))
    def check(messages, cuts):
        decoder = FrameDecoder(union)
        data = b"".join(encode_frame(message) for message in messages)
        received = [m for chunk in chunks(data, cuts) for m in decoder.feed(chunk)]
        assert received == messages

    check()


@given(st.binary(max_size=200))
def test_all_bytes_give_messages_or_an_input_error(data):
    with contextlib.suppress(InputError):
        FrameDecoder(WorkerMessage).feed(data)


def test_an_oversized_frame_is_refused_before_it_is_held():
    with pytest.raises(InputError, match="over the limit"):
        FrameDecoder(AppMessage).feed((MAX_FRAME_BYTES + 1).to_bytes(4, "big"))


def test_a_message_of_the_other_direction_is_refused():
    with pytest.raises(InputError, match="unreadable"):
        FrameDecoder(AppMessage).feed(encode_frame(Bye("no")))


def test_bytes_that_are_no_text_are_an_input_error():
    frame = encode_frame(SwitchVariant("abc")).replace(b"abc", b"\x80bc")
    with pytest.raises(InputError, match="unreadable"):
        FrameDecoder(AppMessage).feed(frame)


def test_a_waiting_worker_says_that_it_is_alive(ends, monkeypatch):
    app, channel = ends
    monkeypatch.setattr("decodescope.variants.live.channel.HEARTBEAT_S", 0.01)
    decoder, heard = FrameDecoder(WorkerMessage), []

    def answer_the_third():
        while len(heard) < 3:
            heard.extend(decoder.feed(app.recv(777)))
        app.sendall(encode_frame(Resume()))

    with ThreadPoolExecutor() as pool:
        answered = pool.submit(answer_the_third)
        assert channel.wait() == [Resume()]
        answered.result()
    assert set(heard) == {Heartbeat()}


def test_heartbeats_do_not_pile_up_for_an_app_that_does_not_read(ends, monkeypatch):
    app, channel = ends
    monkeypatch.setattr("decodescope.variants.live.channel.HEARTBEAT_S", 0.0)
    beats = 0
    send = channel.send

    def send_and_count(message):
        nonlocal beats
        beats += 1
        send(message)
        if channel._outgoing:
            app.sendall(encode_frame(Quit()))

    monkeypatch.setattr(channel, "send", send_and_count)
    assert channel.wait() == [Quit()]
    assert beats > 10
    assert len(channel._outgoing) < 2 * len(encode_frame(Heartbeat()))
