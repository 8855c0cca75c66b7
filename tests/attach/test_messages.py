"""Datagrams of libkineto: read as they are written, and ignored where they are malformed."""

import struct

from hypothesis import given
from hypothesis import strategies as st

from decodescope.attach.kineto.daemon_socket import Message, decode, encode_config, encode_count
from tests.helpers.libkineto import header, registration, request

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)


@given(st.lists(INT32, min_size=1, max_size=50), INT32, INT64)
def test_a_request_of_any_ids_is_one(pids: list[int], kind: int, job: int) -> None:
    asks = (Message.BUSY_REQUEST, Message.REQUEST)
    assert decode(request(pids, kind, job)) is asks[kind >> 1 & 1]


@given(INT32, INT32, INT64)
def test_a_registration_of_any_ids_is_one(pid: int, gpu: int, job: int) -> None:
    assert decode(registration(pid, gpu, job)) is Message.REGISTRATION


def test_only_an_idle_process_takes_a_window() -> None:
    takes = {kind: decode(request([1], kind)) is Message.REQUEST for kind in range(4)}
    assert takes == {0: False, 1: False, 2: True, 3: True}


@given(st.binary(max_size=200))
def test_garbage_is_ignored(datagram: bytes) -> None:
    message = decode(datagram)
    assert message is None or datagram[8:12] in (b"req\0", b"ctxt")


@given(st.data())
def test_a_damaged_message_is_ignored_or_has_as_many_ids_as_it_says(data: st.DataObject) -> None:
    whole = data.draw(
        st.one_of(
            st.lists(INT32, min_size=1, max_size=5).map(request),
            INT32.map(registration),
        )
    )
    place = data.draw(st.integers(0, len(whole) - 1))
    cut = data.draw(st.integers(0, len(whole)))
    value = data.draw(st.integers(0, 255))
    for damaged in (
        whole[:cut],
        whole + b"\0",
        whole[:place] + bytes([value]) + whole[place + 1 :],
    ):
        message = decode(damaged)
        if len(damaged) != len(whole):
            assert message is None
        elif message in (Message.REQUEST, Message.BUSY_REQUEST):
            (count,) = struct.unpack_from("=i", damaged, 44)
            assert len(damaged) == 40 + 16 + 4 * count


def test_a_count_of_ids_that_does_not_fit_is_ignored() -> None:
    for count in (-1, 0, 2, 1 << 30):
        body = struct.pack("=iiqi", 3, count, 0, 7)
        assert decode(header(b"req", len(body)) + body) is None


@given(st.text())
def test_an_answer_is_a_header_and_the_text(text: str) -> None:
    body = text.encode()
    assert encode_config(text) == header(b"req", len(body)) + body


def test_a_registration_is_answered_with_a_count() -> None:
    assert encode_count(3) == header(b"ctxt", 4) + struct.pack("=i", 3)
