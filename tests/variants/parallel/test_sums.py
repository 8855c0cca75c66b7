"""The sums of ranks: which way is taken, what is reported, and the operations of a step."""

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NoReturn

import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement
from decodescope.kernels.host.workspace import MAX_BATCH, NO_KEY
from decodescope.kernels.ops.all_reduce_residual import AllReduceResidual
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.model.workload_costs import weight_bytes_read
from decodescope.variants.parallel import sums
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shard import shard_model
from decodescope.variants.parallel.shared_slots import NotShared, SharedExchange
from decodescope.variants.parallel.sums import RankSums, choose_by_keys, rank_sums
from decodescope.variants.steps.fused.operations import step_operations
from tests.helpers.exchanges import exchanges_of
from tests.helpers.fused_steps import fused, load_family, prompt_of
from tests.helpers.kernel_inputs import at
from tests.helpers.rank_processes import on_ranks

TWO = Ranks(0, 2)
CPU = torch.device("cpu")
_EVEN = {"num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 128}


def shared(sizes: Sequence[int], device: torch.device, ranks: Ranks) -> list[SharedExchange]:
    """Memory that the other rank does not open."""
    made = [exchanges_of(ranks.size, words, "cpu")[ranks.rank] for words in sizes]
    return [SharedExchange(each, ()) for each in made]


def not_shared(*_: object) -> NoReturn:
    raise NotShared("GPU 0 cannot access GPU 1")


@pytest.fixture
def own(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose ranks reach each other's memory."""
    monkeypatch.setattr(sums, "shared_exchanges", shared)


def test_on_cpus_torch_adds_up() -> None:
    made = rank_sums(None, 3, 8, CPU, TWO)
    assert (made.sums, made.choices, made.collective, made.findings) == (None, None, "torch", ())
    assert made.partial.shape == (3, 8)
    assert made.partial.dtype == torch.float32


def test_gpus_that_do_not_reach_each_other_are_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "shared_exchanges", not_shared)
    made = rank_sums(None, 1, 8, torch.device("meta"), TWO)
    assert made.findings == ()
    monkeypatch.setattr(torch, "zeros", lambda *shape, **options: torch.empty(0))
    made = rank_sums(None, 1, 8, torch.device("cuda", 0), TWO)
    assert made.sums is None
    assert [finding.code for finding in made.findings] == ["no_peer_access"]
    assert "GPU 0 cannot access GPU 1: torch.distributed" in made.findings[0].message


@pytest.mark.usefixtures("own")
def test_what_is_named_is_taken() -> None:
    assert rank_sums(None, 1, 8, CPU, TWO).sums is not None
    assert rank_sums("torch", 1, 8, CPU, TWO).sums is None
    with pytest.raises(MissingRequirement, match="symmetric memory cannot be used here"):
        rank_sums("one_shot", 1, 8, CPU, TWO)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("family", "exchange"), [("qwen3", "sums"), ("qwen3", "choices"), ("olmo2", "norms")]
)
def test_a_rank_that_was_missing_ends_the_step(family: str, exchange: str) -> None:
    loaded, workload = load_family(family, "cpu", **_EVEN), DecodeWorkload(1, 4, 2, "fp32")
    shard_model(loaded.model, TWO)
    step = fused(replace(loaded, ranks=TWO), workload)
    assert step.plan.sums is not None
    # Only families whose norms cover all ranks' heads exchange anything for them.
    assert (step.plan.sums.norms is None) == (family == "qwen3")
    step.plan.sums.require_all()
    getattr(step.plan.sums, exchange).exchange.missing.fill_(2)
    with pytest.raises(MissingRequirement, match=r"^rank 1 sent nothing to rank 0 for 60 s"):
        step.prefill(prompt_of(loaded, workload))


def chosen(ranks: Ranks) -> tuple[list[list[int]], int, bool]:
    """Tokens, position and whether no key is left."""
    keys = torch.full((MAX_BATCH,), NO_KEY)
    keys[:2] = torch.tensor([[5 << 32 | 7, 1 << 32 | 3], [4 << 32 | 9, 1 << 32 | 4]])[ranks.rank]
    tokens, position = torch.full((2, 4), -1), at(1, "cpu")
    choose_by_keys(keys, position, tokens)
    return tokens.tolist(), int(position), bool((keys == NO_KEY).all())


def test_torch_chooses_the_largest_key(tmp_path: Path) -> None:
    tokens = [[-1, -1, 0x7FFFFFFF - 7, -1], [-1, -1, 0x7FFFFFFF - 4, -1]]
    assert on_ranks(2, tmp_path, chosen) == [(tokens, 2, True)] * 2


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("family", "spec", "expected"),
    [
        ("qwen3", "fused", ["attention/all_reduce+residual", "mlp/all_reduce+residual"]),
        ("qwen3", "fused-residual", ["attention/all_reduce", "mlp/all_reduce"]),
        ("gemma2", "fused", ["attention/all_reduce", "mlp/all_reduce"]),
        ("cohere2", "fused", ["mlp/all_reduce+residual"]),
        (
            "qwen2-moe",
            "fused",
            ["attention/all_reduce+residual", "shared_expert/all_reduce+residual"],
        ),
        (
            "olmo2",
            "fused",
            ["attention/qk_norm+all_reduce", "attention/all_reduce", "mlp/all_reduce"],
        ),
        ("qwen3", "fused+all_reduce_none", []),
        ("olmo3", "fused+all_reduce_none", []),
    ],
)
def test_a_layer_adds_up_after_attention_and_mlp_or_once_for_both(
    family: str, spec: str, expected: list[str]
) -> None:
    changes = _EVEN | {"num_hidden_layers": 2, "shared_expert_intermediate_size": 142}
    loaded = load_family(family, "cpu", **changes, mlp_only_layers=[])
    shard_model(loaded.model, TWO)
    step = fused(replace(loaded, ranks=TWO), DecodeWorkload(1, 4, 2, "fp32"), spec)
    paths = ["/".join(placed.path) for placed in step_operations(step.plan)]
    found = [path for path in paths if "layer.1" in path and "all_reduce" in path]
    assert [re.sub(r"^.*?([a-z_]+/[a-z_+]+)$", r"\1", path) for path in found] == expected
    assert ("sampling/all_reduce" in paths) == (step.plan.sums is not None)
    codes = [finding.code for finding in step.findings]
    assert codes == ([] if expected else ["sums_left_out"])


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize("spec", ["fused", "fused+all_reduce_torch"])
def test_weights_of_norms_over_ranks_are_read(spec: str) -> None:
    loaded, workload = load_family("olmo2", "cpu"), DecodeWorkload(1, 4, 2, "fp32")
    shard_model(loaded.model, TWO)
    step = fused(replace(loaded, ranks=TWO), workload, spec)
    assert step.weight_bytes_read == weight_bytes_read(loaded.model, 1)


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("family", "batch", "expected"),
    [
        ("qwen3", 1, ["attention/o_proj", "mlp/down_proj"]),
        ("gemma2", 3, ["attention/o_proj", "mlp/down_proj"]),
        ("cohere2", 1, ["mlp/down_proj"]),
        ("qwen2-moe", 1, ["attention/o_proj", "shared_expert/down_proj"]),
        ("qwen3-moe", 1, ["attention/o_proj", "mlp/experts_down"]),
        ("qwen3-moe", 3, ["attention/o_proj", "mlp/experts_combine"]),
    ],
)
def test_the_launch_before_a_pick_up_has_sent_the_sums(
    family: str, batch: int, expected: list[str]
) -> None:
    changes = _EVEN | {"num_hidden_layers": 2, "shared_expert_intermediate_size": 142}
    loaded = load_family(family, "cpu", **changes, mlp_only_layers=[])
    shard_model(loaded.model, TWO)
    step = fused(replace(loaded, ranks=TWO), DecodeWorkload(batch, 4, 2, "fp32"))
    assert step.plan.sums is not None
    partial, shared = step.plan.sums.partial, step.plan.sums.sums
    assert shared is not None
    placed = step_operations(step.plan)
    senders = []
    for before, each in pairwise(placed):
        exchange = getattr(each.operation, "exchange", None)
        if isinstance(each.operation, AllReduceResidual):
            assert each.operation.pushed
            assert each.operation.x is partial
            assert senders[-1] is before
        elif exchange is shared.exchange:
            assert each.operation.residual is partial
            senders.append(each)
    paths = [re.sub(r"^.*\+", "", "/".join(each.path[-2:])) for each in senders]
    assert paths == 2 * expected


def test_one_rank_has_the_operations_of_a_model_that_is_whole() -> None:
    loaded = load_family("cohere2", "cpu")
    step = fused(loaded, DecodeWorkload(1, 4, 2, "fp32"))
    assert step.plan.sums is None
    names = [type(placed.operation).__name__ for placed in step_operations(step.plan)]
    assert not [name for name in names if "AllReduce" in name]


def patience(ranks: Ranks) -> tuple[int, int]:
    """In ns, while ranks are built and afterwards."""
    made = RankSums(ranks, torch.empty(0), sums=shared([8], CPU, ranks)[0])
    assert made.sums is not None
    with made.built_together():
        inside = int(made.sums.exchange.patience_ns)
    return inside, int(made.sums.exchange.patience_ns)


def test_launches_of_the_first_run_have_more_patience(tmp_path: Path) -> None:
    assert on_ranks(2, tmp_path, patience) == [(sums.BUILDING_NS, sums.WAITING_NS)] * 2
