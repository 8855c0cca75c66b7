"""Incremental decoding against decoding everything at once."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from decodescope.variants.live.text_tail import TAIL_CHARACTERS, TextTail


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


def test_words_are_decoded_in_the_light_of_those_before():
    """SentencePiece strips the leading space of whatever is decoded first."""
    words = ["▁one", "▁two", "▁three", "▁four", "▁five", "▁six", "▁seven"]

    def decode(ids: list[int]) -> str:
        return "".join(words[i] for i in ids).replace("▁", " ").removeprefix(" ")

    tail = TextTail(decode)
    for index in range(len(words)):
        tail.feed([index])
    assert tail.text == "one two three four five six seven"
