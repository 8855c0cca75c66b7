"""Ids brought to the host in bulk are the ids that were produced, in order, each once."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from decodescope.variants.live.token_tap import TokenTap  # noqa: E402

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
def test_clear_forgets_what_is_on_its_way(device):
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
