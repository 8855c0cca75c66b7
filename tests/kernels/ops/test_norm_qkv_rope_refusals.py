"""Refusals of the launch of norm, Q/K/V and RoPE, in one line each."""

from typing import Any

import torch

from decodescope.kernels.host.tile import Tile
from decodescope.kernels.host.weights import Norm, QkNorm, WeightMatrix
from decodescope.kernels.host.workspace import new_workspace
from decodescope.kernels.ops.norm_qkv_rope import NormQkvRope
from decodescope.kernels.ops.rope import RopeTable
from tests.helpers.refusals import refuses

X, Q, CACHE = torch.zeros(1, 8), torch.zeros(1, 3, 4), torch.zeros(1, 2, 5, 4)
ONES = torch.ones(4)
CORRECT: dict[str, Any] = {
    "x": X,
    "norm": Norm(torch.ones(8), 1e-6),
    "qkv": WeightMatrix(torch.zeros(28, 8)),
    "rope": RopeTable(*torch.zeros(2, 5, 2)),
    "position": torch.zeros(1, dtype=torch.int32),
    "q": Q,
    "k_cache": CACHE,
    "v_cache": CACHE,
    "tile": Tile(4, 8),
    "workspace": new_workspace(20, 5, "cpu"),
    "qk_norm": QkNorm(ONES, ONES, 1e-6),
}


test_refuses = refuses(
    (NormQkvRope(**(CORRECT | change)).launch, complaint)
    for change, complaint in [
        ({"x": torch.zeros(8)}, r"x \[8\]: must be \[1 to 64, 8\]"),
        ({"x": torch.zeros(65, 8)}, "1 to 64"),
        ({"x": torch.zeros(1, 9)}, r"x .*\[1, 8\]"),
        ({"x": torch.zeros(1, 8).double()}, "x is torch.float64"),
        ({"x": torch.zeros(1, 8, device="meta")}, "x .* on meta"),
        ({"norm": Norm(torch.ones(6), 1e-6)}, r"norm weight .*\[8\]"),
        ({"norm": Norm(torch.ones(8).int(), 1e-6)}, "norm weight is torch.int32"),
        ({"norm": Norm(torch.ones(8, device="meta"), 1e-6)}, "norm weight .* on meta"),
        ({"qkv": WeightMatrix(torch.zeros(32, 8))}, "qkv of 32 rows: .* need 28"),
        ({"rope": RopeTable(*torch.zeros(2, 5, 4))}, "head_dim 4: the table rotates 8"),
        ({"rope": RopeTable(*torch.zeros(2, 5, 2, device="meta"))}, "cos .* on meta"),
        ({"rope": RopeTable(*torch.zeros(2, 4, 2))}, "table of 4 positions: the cache has 5"),
        ({"position": torch.zeros(1, dtype=torch.int64)}, "position is torch.int64"),
        ({"position": torch.zeros(1, 1, dtype=torch.int32)}, r"position .*\[1, 1\].*\[1\]"),
        ({"position": torch.zeros(1, dtype=torch.int32, device="meta")}, "position .* on meta"),
        ({"q": Q[0]}, r"q \[3, 4\], .*must be"),
        ({"q": Q.half()}, "q is torch.float16"),
        ({"q": Q.repeat(2, 1, 1)}, r"q .*\[2, 3, 4\].*\[1, 3, 4\]"),
        ({"q": torch.zeros(1, 4, 3).mT}, "q has strides"),
        ({"q": Q.to("meta")}, "q .* on meta"),
        ({"x": Q.flatten()[4:].view(1, 8)}, "q shares memory with x"),
        ({"k_cache": CACHE[0]}, r"k_cache \[2, 5, 4\]"),
        ({"k_cache": torch.zeros(2, 2, 5, 4)}, r"k_cache .*\[1, 2, 5, 4\]"),
        ({"k_cache": CACHE.mT.contiguous().mT}, "k_cache has strides"),
        ({"v_cache": torch.zeros(1, 2, 6, 4)}, r"v_cache .*\[1, 2, 5, 4\]"),
        ({"v_cache": CACHE.half()}, "v_cache is torch.float16"),
        ({"v_cache": CACHE.to("meta")}, "v_cache .* on meta"),
        ({"tile": Tile(1, 8)}, "tile of one row"),
        ({"tile": Tile(4, 8, splits=2)}, "tile of 2 splits"),
        ({"qk_norm": QkNorm(torch.ones(8), ONES, 1e-6)}, r"q norm weight .*\[12\]"),
        ({"qk_norm": QkNorm(ONES, ONES.int(), 1e-6)}, "k norm weight is torch.int32"),
        ({"qk_norm": QkNorm(ONES, ONES.to("meta"), 1e-6)}, "k norm .* on meta"),
        ({"workspace": new_workspace(19, 5, "cpu")}, "needs 20 and 5"),
        ({"workspace": new_workspace(20, 4, "cpu")}, "needs 20 and 5"),
        ({"workspace": new_workspace(20, 5, "meta")}, "workspace on meta"),
    ]
)
