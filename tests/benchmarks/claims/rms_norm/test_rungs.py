"""Every rung of the ladder computes what `RmsNorm` does, whatever divides the rows."""

import itertools
import re
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch

from benchmarks.claims.rms_norm.rungs import RmsNormLooped, RmsNormRows, RowTile
from decodescope.kernels.host.operation import KernelOperation
from decodescope.kernels.host.weights import Norm
from decodescope.kernels.ops.rms_norm import MAX_FEATURES, rms_norm_reference
from tests.helpers.gpu_code import Asked, gpu_code
from tests.helpers.kernel_inputs import LIMITS, poisoned, random, relative_error

Rung = Callable[[torch.Tensor, Norm, torch.Tensor], KernelOperation]

TILES = {
    "one row": RowTile(),
    "four rows": RowTile(rows=4, num_warps=4, hint="evict_first"),
    "persistent": RowTile(num_stages=3, programs=2, hint="evict_stores"),
    "persistent, not pipelined": RowTile(rows=2, programs=2, hint="evict_stores"),
    "persistent, two rows": RowTile(rows=2, num_stages=2, programs=3),
}
RUNGS: dict[str, Rung] = {
    "looped": lambda x, norm, out: RmsNormLooped(x, norm, out, block=64),
    **{
        name: lambda x, norm, out, tile=tile: RmsNormRows(x, norm, out, tile)
        for name, tile in TILES.items()
    },
}


@pytest.fixture(params=list(RUNGS))
def rung(request: pytest.FixtureRequest) -> Rung:
    return RUNGS[request.param]


@pytest.mark.parametrize("dtype", list(LIMITS))
@pytest.mark.parametrize(
    ("rows", "features"), [(1, 1), (8, 128), (7, 128), (1, 64), (5, 80), (13, 577)]
)
def test_any_rows_of_any_length(
    rows: int, features: int, dtype: torch.dtype, rung: Rung, device: str
) -> None:
    x = random(rows, features, dtype=dtype, device=device) * 3 + 0.5
    norm = Norm(random(features, dtype=dtype, device=device), 1e-2)
    out, again = poisoned(x), poisoned(x)
    rung(x, norm, out).launch()
    rung(x, norm, again).launch()
    assert relative_error(out, rms_norm_reference(x, norm)) < LIMITS[dtype]
    assert torch.equal(out, again)


@pytest.mark.parametrize("tile", TILES.values(), ids=list(TILES))
@pytest.mark.parametrize(("rows", "features"), [(8, 128), (7, 100)])
def test_without_a_norm_it_copies(rows: int, features: int, tile: RowTile, device: str) -> None:
    x = random(rows, features, dtype=torch.float32, device=device)
    # What follows the rows in memory stays as it is.
    memory = torch.full((rows + 8, features), float("nan"), device=device)
    RmsNormRows(x, None, memory[:rows], tile).launch()
    assert torch.equal(memory[:rows], x)
    assert memory[rows:].isnan().all()


def test_a_row_of_zeros_is_zeros_and_a_row_of_nan_stays_alone(rung: Rung, device: str) -> None:
    x = random(6, 96, dtype=torch.float32, device=device)
    x[1], x[4] = 0.0, float("nan")
    norm = Norm(torch.ones(96, device=device), 1e-5)
    out = poisoned(x)
    rung(x, norm, out).launch()
    assert not out[1].any()
    assert out.isnan().any(-1).tolist() == [False, False, False, False, True, False]


def test_a_replay_reads_x_again(rung: Rung, device: str) -> None:
    x = random(5, 64, dtype=torch.float32, device=device)
    norm = Norm(random(64, dtype=torch.float32, device=device), 1e-5)
    out = poisoned(x)
    replay = rung(x, norm, out).launch()
    x.copy_(random(5, 64, seed=1, dtype=torch.float32, device=device))
    out.fill_(float("nan"))
    replay()
    assert relative_error(out, rms_norm_reference(x, norm)) < LIMITS[torch.float32]


@pytest.mark.parametrize(
    ("x", "out", "complaint"),
    [
        (torch.zeros(8), torch.zeros(8), r"\[rows, features\]"),
        (torch.zeros(2, 8).long(), torch.zeros(2, 8), "x is torch.int64"),
        (torch.zeros(2, 8), torch.zeros(3, 8), r"out .*must be .*\[2, 8\]"),
        (torch.zeros(8, 2).T, torch.zeros(2, 8), "x has strides"),
        (torch.zeros(1, MAX_FEATURES + 1), torch.zeros(1, MAX_FEATURES + 1), "must be 1 to"),
    ],
)
def test_refuses(x: torch.Tensor, out: torch.Tensor, complaint: str, rung: Rung) -> None:
    with pytest.raises(ValueError, match=complaint):
        rung(x, Norm(torch.ones(x.shape[-1]), 1e-6), out).launch()


def test_refuses_another_weight_and_block(device: str) -> None:
    x = torch.zeros(2, 8, device=device)
    looped = RmsNormLooped(x, Norm(torch.ones(7, device=device), 1e-6), torch.empty_like(x))
    with pytest.raises(ValueError, match=r"norm weight .*must be .*\[8\]"):
        looped.launch()
    norm = Norm(torch.ones(8, device=device), 1e-6)
    with pytest.raises(ValueError, match="block 24: must be a power of two"):
        replace(looped, norm=norm, block=24).launch()


@pytest.mark.parametrize(
    "wrong", [{"rows": 3}, {"num_warps": 0}, {"num_stages": 0}, {"programs": 0}]
)
def test_refuses_impossible_tiles(wrong: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"power of two|below 1"):
        RowTile(**wrong)  # type: ignore[arg-type]


STAGES: dict[str, int | None] = {"rows": None, "persistent": 1, "pipelined": 3}
HINTS = {"no hint": ("", ""), "evict_stores": ("evict_last", "evict_first")}
ACCESSES = [(4096, "no hint"), (4096, "evict_stores"), (3200, "evict_stores")]


@pytest.fixture(scope="module")
def ptx() -> dict[str, str]:
    """Triton's PTX of the kernel of whole rows, by form, features and hint."""
    pointers = ("x_ptr", "weight_ptr", "out_ptr")
    types = dict.fromkeys(pointers, "*fp32") | {"rows": "i32", "eps": "fp32"}
    asked = {}
    for (features, hint), (case, stages) in itertools.product(ACCESSES, STAGES.items()):
        load, store = HINTS[hint]
        constants = {
            "FEATURES": features,
            "BLOCK": 4096,
            "ROWS": 2,
            "EVEN": features == 4096,
            "LOAD": load,
            "STORE": store,
            "STAGES": stages,
        }
        kernel = (RmsNormRows.__module__, "_rows_kernel")
        asked[f"{case} {features} {hint}"] = Asked(*kernel, types, constants, pointers)
    return gpu_code("ptx", asked)


@pytest.mark.parametrize(("features", "hint"), ACCESSES)
@pytest.mark.parametrize("case", list(STAGES))
def test_every_access_has_16_bytes(
    case: str, features: int, hint: str, ptx: dict[str, str]
) -> None:
    text = ptx[f"{case} {features} {hint}"]
    accesses = re.findall(r"\b(?:ld|st)\.global[\w.:]*", text)
    assert {re.sub(r".*(v\d)", r"\1", one) for one in accesses} == {"v4.b32"}
    # The loads of the pipelined loop are copies into shared memory.
    copies = re.findall(
        r"cp\.async\.\w+\.shared\.global[\w.:]* \[[^\]]*\], \[[^\]]*\], (\w+)", text
    )
    assert set(copies) == ({"0x10"} if case == "pipelined" else set())


@pytest.mark.parametrize("case", list(STAGES))
def test_loaded_lines_leave_last_and_stored_ones_first(case: str, ptx: dict[str, str]) -> None:
    text, plain = ptx[f"{case} 4096 evict_stores"], ptx[f"{case} 4096 no hint"]
    stores = re.findall(r"\bst\.global[\w.:]*", text)
    assert set(stores) == {"st.global.L1::evict_first.L2::cache_hint.v4.b32"}
    hinted = re.findall(r"\bld\.global\.L1::evict_last\.L2::cache_hint[\w.:]*", text)
    # As many 16-byte stores as loads of x; only copies into shared memory take their place.
    assert len(hinted) == (0 if case == "pipelined" else len(stores))
    assert "evict" not in plain
