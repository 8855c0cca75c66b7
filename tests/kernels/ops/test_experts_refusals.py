"""Refusals of the launches of a mixture of experts, in one line each."""

import torch

from decodescope.kernels.host.experts import Experts
from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, WeightMatrix
from decodescope.kernels.ops.experts_combine import ExpertsCombine
from decodescope.kernels.ops.experts_down import ExpertsDown
from decodescope.kernels.ops.experts_down_products import ExpertsDownProducts
from decodescope.kernels.ops.experts_gate_up import ExpertsGateUp
from tests.helpers.refusals import refuses


def _experts(**changes) -> Experts:
    router, gate_up = WeightMatrix(torch.zeros(4, 16)), WeightMatrix(torch.zeros(64, 16))
    matrices = {"router": router, "gate_up": gate_up, "down": WeightMatrix(torch.zeros(64, 8))}
    return Experts(**matrices | {"chosen": 2, "normalized": True} | changes)


X, LOGITS, OUT, TILE = torch.zeros(1, 16), torch.zeros(1, 4), torch.zeros(1, 2, 8), Tile(4, 16)
TWO = torch.zeros(2, 2, 8)

test_refuses = refuses(
    [
        (lambda: _experts(chosen=5), "5 experts of 4: must be 1 to 4"),
        (lambda: _experts(chosen=0), "0 experts of 4"),
        (lambda: _experts(correction=torch.zeros(4), normalized=False), "must be normalized"),
        (lambda: _experts(gate_up=WeightMatrix(torch.zeros(60, 16))), r"4 experts of \[16, 16\]"),
        (lambda: _experts(part=range(1, 5)), r"experts range\(1, 5\): must be some of 4"),
        (lambda: _experts(part=range(2)), r"2 experts of \[16, 16\]"),
        (lambda: _experts(down=WeightMatrix(torch.zeros(60, 8))), "down of 60 rows: must be 4"),
        *(
            (ExpertsGateUp(x, norm, _experts(), logits, out, tile).launch, complaint)
            for x, norm, logits, out, tile, complaint in [
                (torch.zeros(1, 9), None, LOGITS, OUT, TILE, r"x .*\[1, 16\]"),
                (X, None, torch.zeros(1, 5), OUT, TILE, r"logits .*\[1, 4\]"),
                (X, None, LOGITS.long(), OUT, TILE, "logits is torch.int64"),
                (X, None, LOGITS, torch.zeros(1, 8), TILE, r"out .*\[1, 2, 8\]"),
                (X, None, LOGITS, X.view(1, 2, 8), TILE, "out shares memory with x"),
                (X, None, LOGITS, OUT, Tile(1, 16), "holds no pair"),
                (X, None, LOGITS, OUT, Tile(4, 16, splits=2), "splits"),
                (
                    torch.zeros(2, 16),
                    Norm(torch.ones(16), 1e-5),
                    torch.zeros(2, 4),
                    torch.zeros(2, 2, 8),
                    TILE,
                    "a norm of 2 tokens",
                ),
            ]
        ),
        (ExpertsGateUp(X, None, _experts(), LOGITS, OUT, TILE, X).launch, r"up .*\[1, 2, 8\]"),
        *(
            (ExpertsDown(x, _experts(), logits, residual, tile).launch, complaint)
            for x, logits, residual, tile, complaint in [
                (torch.zeros(1, 8), LOGITS, X, TILE, r"x .*\[1, 2, 8\]"),
                (torch.zeros(65, 2, 8), LOGITS, X, TILE, "must be torch.float32 .1, 2, 8."),
                (OUT, torch.zeros(1, 3), X, TILE, r"logits .*\[1, 4\]"),
                (OUT, LOGITS, torch.zeros(1, 15), TILE, r"residual .*\[1, 16\]"),
                (OUT, LOGITS, X, Tile(4, 16, splits=2), "splits"),
            ]
        ),
        (ExpertsDownProducts(OUT, _experts(), LOGITS, X, TILE).launch, "2 to 64 tokens"),
        (ExpertsDownProducts(TWO, _experts(), LOGITS, TWO, TILE).launch, r"logits .*\[2, 4\]"),
        (ExpertsCombine(TWO, _experts(), LOGITS, X).launch, r"x .*\[2, 2, 16\]"),
        (ExpertsCombine(torch.zeros(1, 2, 16), _experts(), X, X).launch, r"logits .*\[1, 4\]"),
    ]
)
