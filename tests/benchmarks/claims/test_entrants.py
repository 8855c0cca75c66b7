"""What PyTorch launches is counted from what it runs; launches of ours in a row are one entrant."""

import weakref

import torch

from benchmarks.claims.entrants import chained, cost_of, keeping_results
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import RmsNorm


def test_the_cost_is_that_of_each_launch_and_views_launch_nothing() -> None:
    x, row = torch.zeros(4, 8), torch.zeros(8)
    assert cost_of(lambda: x.view(8, 4)[1:].transpose(0, 1)).launches == 0
    # Read x and the row, write a matrix; then read and write that.
    cost = cost_of(lambda: (x * row).neg_())
    assert cost.launches == 2
    assert cost.bytes_moved == 4 * (32 + 8 + 32) + 4 * (32 + 32)
    # Already float32: no launch. To float16: read 4 bytes an element, write 2.
    assert cost_of(lambda: x.float()).launches == 0
    assert cost_of(x.half).bytes_moved == 32 * 6


def test_a_copy_of_strided_elements_is_a_launch() -> None:
    x = torch.zeros(4, 8)
    assert cost_of(lambda: x.t().reshape(-1)).launches == 1
    assert cost_of(lambda: x.flatten()).launches == 0


def test_a_chain_is_launched_in_order_and_its_last_output_counts() -> None:
    x, norm = torch.randn(2, 16), Norm(torch.full((16,), 2.0), 1e-6)
    middle, out = torch.empty(2, 16), torch.empty(2, 16)
    chain = [RmsNorm(x, norm, middle), RmsNorm(middle, norm, out)]
    entrant = chained([chain], "twice", (x.double(),), 1e-3, 0)
    (result,) = entrant.result()
    assert torch.allclose(result, middle)  # the norm of a row of mean square 4 with weight 2
    assert entrant.name == "rms_norm + rms_norm"
    assert entrant.launches == 2
    assert entrant.traffic_bytes == 2 * (2 * 128 + 64)
    out.fill_(0.0)
    entrant.calls[0]()
    assert torch.equal(out, result)


def test_a_result_stays_until_its_copys_next_turn() -> None:
    made: list[weakref.ref[torch.Tensor]] = []

    def new() -> tuple[torch.Tensor, ...]:
        result = torch.zeros(1)
        made.append(weakref.ref(result))
        return (result,)

    first, second = keeping_results([new, new])
    first()
    second()
    assert [one() is None for one in made] == [False, False]
    first()
    assert [one() is None for one in made] == [True, False, False]
