"""The ids and the text of sequence 0, fetched and decoded in parts, are complete and in order."""

from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from decodescope.variants.live.decoding import TAIL_CHARACTERS, TextTail
from decodescope.variants.live.session import TokenTap

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


def steps(device: str, start: int, count: int):
    """`count` id tensors of a batch of 3 whose sequence 0 counts up from `start`."""
    return [torch.tensor([n, -1, -2], device=device) for n in range(start, start + count)]


@pytest.mark.parametrize("device", DEVICES)
def test_every_id_of_sequence_0_arrives_once_and_in_order(device):
    @settings(deadline=None, max_examples=30)
    @given(st.lists(st.integers(0, 5), max_size=12))
    def check(counts):
        tap, produced, arrived = TokenTap(device), 0, []
        for count in counts:
            for ids in steps(device, produced, count):
                tap.add(ids)
            produced += count
            arrived += tap.exchange()
            assert arrived == list(range(len(arrived)))
        arrived += tap.finish()
        assert arrived == list(range(produced))
        assert tap.finish() == tap.exchange() == []

    check()


@pytest.mark.parametrize("device", DEVICES)
def test_clear_discards_a_copy_on_its_way(device):
    tap = TokenTap(device)
    for ids in steps(device, 0, 3):
        tap.add(ids)
    if device == "cuda":
        assert tap.exchange() == []
    tap.clear()
    tap.add(steps(device, 9, 1)[0])
    assert tap.finish() == [9]


@pytest.mark.gpu
def test_an_exchange_does_not_wait_for_the_device():
    tap = TokenTap("cuda")
    zeros = [torch.zeros(3, dtype=torch.int64, device="cuda") for _ in range(4)]
    for ids in zeros:  # the first exchange also loads kernels and allocates pinned memory
        tap.add(ids)
    tap.exchange()
    tap.finish()
    torch.cuda._sleep(1_000_000_000)
    busy = torch.cuda.Event()
    for ids in zeros:
        tap.add(ids)
    assert tap.exchange() == []
    busy.record()
    assert not busy.query()
    assert tap.exchange() == []
    assert tap.finish() == [0, 0, 0, 0]


def byte_decode(ids: list[int]) -> str:
    """A byte-level tokenizer whose token ids are the bytes."""
    return bytes(ids).decode("utf-8", errors="replace")


def chunked(ids: list[int], cuts: list[int]) -> list[list[int]]:
    edges = [0, *sorted(min(cut, len(ids)) for cut in cuts), len(ids)]
    return [ids[a:b] for a, b in pairwise(edges)]


@given(st.text(max_size=60), st.lists(st.integers(0, 240), max_size=60))
def test_any_chunking_gives_the_text_decoded_at_once(text, cuts):
    tail = TextTail(byte_decode)
    for chunk in chunked(list(text.encode("utf-8", "surrogatepass")), cuts):
        tail.feed(chunk)
        assert not tail.text.endswith("\ufffd") or "\ufffd" in text
    assert tail.text == text


@given(st.lists(st.lists(st.integers(0, 255), max_size=9), max_size=30))
def test_broken_bytes_neither_raise_nor_hold_the_text_back_for_long(chunks):
    tail = TextTail(byte_decode)
    for chunk in chunks:
        tail.feed(chunk)
    tail.feed(list(b"....sound"))
    assert tail.text.endswith("sound")


def test_a_character_appears_when_its_last_byte_has_come():
    tail = TextTail(byte_decode)
    shown = []
    for byte in "a\N{EURO SIGN}b".encode():
        tail.feed([byte])
        shown.append(tail.text)
    assert shown == ["a", "a", "a", "a\N{EURO SIGN}", "a\N{EURO SIGN}b"]


def test_only_the_tail_is_kept_and_restart_empties_it():
    tail = TextTail(byte_decode)
    text = "".join(chr(ord("a") + i % 26) for i in range(TAIL_CHARACTERS * 2 + 7))
    for start in range(0, len(text), 13):
        tail.feed(list(text[start : start + 13].encode()))
    assert tail.text == text[-TAIL_CHARACTERS:]
    tail.feed(list("\N{EURO SIGN}".encode())[:2])
    tail.restart()
    tail.feed(list(b"new"))
    assert tail.text == "new"


def test_without_a_tokenizer_there_is_no_text():
    tail = TextTail(None)
    tail.feed([1, 2, 3])
    assert tail.text == ""


def test_words_are_decoded_together_with_the_previous_ones():
    """SentencePiece strips the leading space of whatever is decoded first."""
    words = ["▁one", "▁two", "▁three", "▁four", "▁five", "▁six", "▁seven"]

    def decode(ids: list[int]) -> str:
        return "".join(words[i] for i in ids).replace("▁", " ").removeprefix(" ")

    tail = TextTail(decode)
    for index in range(len(words)):
        tail.feed([index])
    assert tail.text == "one two three four five six seven"
