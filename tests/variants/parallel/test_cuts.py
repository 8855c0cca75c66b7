"""The cuts of every family in one process: the parts of all ranks are the model, and no more."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from decodescope.analyzer.errors import ModelError
from decodescope.variants.model.mxfp4_experts import packed_experts
from decodescope.variants.model.quantized_weights import weight_tensors
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.workload_costs import (
    KvBytes,
    StepFlops,
    model_bytes,
    weight_bytes_read,
)
from decodescope.variants.parallel.cuts import Block, Cut, Once, split_of
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shard import shard_model
from tests.helpers import families
from tests.helpers.split_families import CASES, GEMMA4_MIXTURE, RANKS, shape_of

CUT_CASES = [(name, ep, {}) for name, ep in CASES]
CUT_CASES += [("gemma4", ep, GEMMA4_MIXTURE) for ep in (False, True)]


def parts_of(model: Any, size: int, ep: bool) -> list[Any]:
    """What each rank holds, of copies."""
    parts = [deepcopy(model) for _ in range(size)]
    for rank, part in enumerate(parts):
        shard_model(part, Ranks(rank, size), ep)
    return parts


@given(st.integers(1, 70), st.integers(1, 5), st.integers(1, 9), st.booleans())
def test_ranks_hold_every_unit(units: int, elements: int, size: int, uneven: bool) -> None:
    block = Block(units, elements, uneven)
    if not block.splits(size):
        return
    held = [block.held(Ranks(rank, size)) for rank in range(size)]
    assert all(each and each.start % elements == each.stop % elements == 0 for each in held)
    # Neighbours follow each other, or hold the same.
    counts = [sum(element in each for each in held) for element in range(block.elements)]
    assert set(counts) == {max(1, size // units) if not uneven else 1}
    assert [each.start for each in held] == sorted(each.start for each in held)
    if not uneven:
        assert len({len(each) for each in held}) == 1


@pytest.mark.parametrize("size", RANKS)
@pytest.mark.parametrize(("name", "ep", "changes"), CUT_CASES)
def test_the_parts_are_the_model(name: str, ep: bool, changes: dict[str, Any], size: int) -> None:
    model = families.build(name, **shape_of(name), **changes)
    parts = parts_of(model, size, ep)
    whole = dict(model.named_parameters(remove_duplicate=False))
    assert parts[0].config.num_attention_heads == model.config.num_attention_heads // size
    for key, weight in whole.items():
        cut = split_of(parts[0]).cuts.get(key)
        held = [part.get_parameter(key) for part in parts]
        if cut is None:
            assert all(torch.equal(each, weight) for each in held)
        elif isinstance(cut, Once):
            assert torch.equal(sum(held), weight)
        else:
            assert torch.equal(put_together(cut, held, weight), weight)
            assert cut.whole_shape(held[-1].shape) == weight.shape


def put_together(cut: Cut, held: list[torch.Tensor], like: torch.Tensor) -> torch.Tensor:
    """The whole tensor from the parts of all ranks, a unit at a time."""
    whole = torch.full_like(like, torch.nan)
    start, taken = 0, [0] * len(held)
    for block in cut.blocks:
        for rank, part in enumerate(held):
            elements = block.held(Ranks(rank, len(held)))
            count = len(elements)
            values = part.narrow(cut.dimension, taken[rank], count)
            whole.narrow(cut.dimension, start + elements.start, count).copy_(values)
            taken[rank] += count
        start += block.elements
    assert all(part.shape[cut.dimension] == end for part, end in zip(held, taken, strict=True))
    return whole


def test_merged_rows_by_hand() -> None:
    """Phi-3: of Q, K and V of 4, 2 and 2 heads of 32, and of gate and up."""
    model = families.build("phi3", num_attention_heads=4, num_key_value_heads=2)
    layer = deepcopy(model.model.layers[1])
    part = parts_of(model, 2, False)[1].model.layers[1]
    qkv = layer.self_attn.qkv_proj.weight
    expected = torch.cat((qkv[64:128], qkv[160:192], qkv[224:256]))
    assert torch.equal(part.self_attn.qkv_proj.weight, expected)
    gate_up = layer.mlp.gate_up_proj.weight
    assert torch.equal(part.mlp.gate_up_proj.weight, torch.cat((gate_up[68:136], gate_up[204:])))
    assert torch.equal(part.self_attn.o_proj.weight, layer.self_attn.o_proj.weight[:, 64:])
    assert torch.equal(part.mlp.down_proj.weight, layer.mlp.down_proj.weight[:, 68:])
    assert part.self_attn.num_key_value_groups == 2


def test_gate_and_up_of_gpt_oss_stay_together() -> None:
    model = families.build("gpt-oss", **shape_of("gpt-oss"))
    experts = model.model.layers[0].mlp.experts
    part = parts_of(model, 4, False)[2].model.layers[0]
    # 132 pairs of a gate and an up row.
    assert torch.equal(part.mlp.experts.gate_up_proj, experts.gate_up_proj[..., 132:198])
    assert torch.equal(part.mlp.experts.gate_up_proj_bias, experts.gate_up_proj_bias[:, 132:198])
    assert torch.equal(part.mlp.experts.down_proj, experts.down_proj[:, 66:99])
    assert part.self_attn.sinks.tolist() == [model.model.layers[0].self_attn.sinks[2].item()]


def test_a_tied_head_is_rows_of_the_table() -> None:
    model = families.build("llama-tied")
    for rank, part in enumerate(parts_of(model, 2, False)):
        head, table = part.lm_head.weight, part.model.embed_tokens.weight
        assert head.data_ptr() == table[51 * rank].data_ptr()
        assert len(head) == (51, 50)[rank]
        others = sum(weight.nbytes for weight in weight_tensors(part) if weight is not head)
        assert model_bytes(part) == others
        # A step reads the head, and of the table the row of each sequence.
        read = others - table.nbytes + head.nbytes + 3 * table[0].nbytes
        assert weight_bytes_read(part, 3) == read


def test_costs_are_those_of_a_rank() -> None:
    model = families.build("qwen3", num_attention_heads=8, num_key_value_heads=2)
    whole, flops = KvBytes(model.config, 3, 4), StepFlops(model, 3)
    for size, kv_share in ((2, 2), (4, 2), (8, 2)):
        part = parts_of(model, size, False)[0]
        assert KvBytes(part.config, 3, 4).at(20) == whole.at(20) // kv_share
        products = StepFlops(part, 3)
        per_token = flops.at(21) - flops.at(20)
        assert products.at(21) - products.at(20) == per_token // size


@pytest.mark.parametrize(
    ("name", "changes", "size", "ep", "complaint"),
    [
        ("llama2", {}, 2, False, "num_attention_heads 3 cannot be split over 2 ranks"),
        (
            "llama2",
            {"num_attention_heads": 6},
            2,
            False,
            r"num_key_value_heads 3 cannot .* \(only a multiple or a divisor of 2\)",
        ),
        (
            "gemma4",
            {"num_key_value_heads": 4, "num_attention_heads": 12, "num_global_key_value_heads": 3},
            4,
            False,
            "num_global_key_value_heads 3",
        ),
        (
            "llama-odd-hidden",
            {"num_attention_heads": 4, "hidden_size": 100},
            2,
            False,
            "intermediate_size 131",
        ),
        (
            "qwen3-moe-of-all",
            shape_of("qwen3-moe-of-all") | {"moe_intermediate_size": 33},
            2,
            False,
            "moe_intermediate_size 33",
        ),
        ("qwen2-moe", {"num_attention_heads": 4}, 2, False, "shared_expert_intermediate_size 141"),
        ("glm4-moe", shape_of("glm4-moe") | {"n_routed_experts": 5}, 2, True, "n_routed_experts 5"),
        (
            "mixtral",
            {"num_attention_heads": 8, "num_key_value_heads": 8},
            8,
            True,
            "num_local_experts 4",
        ),
        (
            "qwen3-moe-of-one",
            shape_of("qwen3-moe-of-one") | {"num_experts": 1},
            2,
            True,
            "num_local_experts 1",
        ),
        ("llama-tied", {"vocab_size": 5}, 4, False, "vocab_size 5"),
    ],
)
def test_what_ranks_do_not_divide_is_one_line(
    name: str, changes: dict[str, Any], size: int, ep: bool, complaint: str
) -> None:
    model = families.build(name, **changes)
    before = {key: weight.clone() for key, weight in model.named_parameters()}
    with pytest.raises(ModelError, match=complaint) as raised:
        shard_model(model, Ranks(0, size), ep, "a model")
    assert str(raised.value).startswith("a model: ")
    assert "\n" not in str(raised.value)
    assert all(torch.equal(model.get_parameter(key), weight) for key, weight in before.items())


def test_a_model_without_experts_has_none_to_hold_whole() -> None:
    with pytest.raises(ModelError, match="its layers have no experts; leave out --ep"):
        shard_model(families.build("qwen3"), Ranks(0, 2), ep=True)


@pytest.mark.parametrize(
    ("model_type", "complaint"),
    [
        ("gpt2", "its layers and head"),
        ("phi", "a layer has no attention with heads and o_proj"),
        ("deepseek_v3", "a layer has no attention with heads and o_proj"),
        ("qwen3_next", "a layer has no attention with heads and o_proj"),
        ("bitnet", "self_attn.attn_sub_norm norms all heads at once"),
        ("starcoder2", "mlp.c_fc has weight, which has no place"),
        ("llama4_text", "feed_forward.experts has gate_up_proj, which has no place"),
        ("apertus", "mlp.act_fn has alpha_p, which has no place"),
        ("mimo_v2_flash", "self_attn.q_proj has weight, which has no place"),
    ],
)
def test_other_architectures_are_refused(model_type: str, complaint: str) -> None:
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16}
    small = {"vocab_size": 64, "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96}
    if model_type not in CONFIG_MAPPING:
        pytest.skip(f"this transformers has no {model_type}")
    with torch.device("meta"):
        config = AutoConfig.for_model(model_type, **small, **heads)
        model = AutoModelForCausalLM.from_config(config)
    with pytest.raises(ModelError, match=f"of type {model_type} cannot be split.*: {complaint};"):
        shard_model(model, Ranks(0, 2))


def packed_fields(width: int) -> dict[str, Any]:
    quantized = {"quantization_config": {"quant_method": "mxfp4"}, "intermediate_size": width}
    return families.CONFIGS["gpt-oss"] | shape_of("gpt-oss") | quantized


@pytest.mark.parametrize("ep", [False, True])
def test_random_parts_are_those_of_the_whole_model(ep: bool) -> None:
    fields = (
        families.CONFIGS["gemma4-inputs"] | shape_of("gemma4-inputs"),
        families.CONFIGS["qwen2-moe"] | shape_of("qwen2-moe"),
        packed_fields(128),
    )
    for config in fields[ep:]:
        whole = build_random(config, "cpu", torch.bfloat16)
        for rank, cut in enumerate(parts_of(whole, 4, ep)):
            drawn = build_random(config, "cpu", torch.bfloat16, Ranks(rank, 4), ep)
            assert_same(drawn, cut)


def assert_same(model: Any, expected: Any) -> None:
    """All parameters, buffers and packed experts."""
    for held in ("named_parameters", "named_buffers"):
        got, wanted = (dict(getattr(each, held)()) for each in (model, expected))
        assert got.keys() == wanted.keys()
        assert [key for key in got if not torch.equal(got[key], wanted[key])] == []
    for (_, got), (_, wanted) in zip(packed_experts(model), packed_experts(expected), strict=True):
        assert torch.equal(got.data, wanted.data)


def test_packed_experts_are_cut_between_blocks() -> None:
    whole = build_random(packed_fields(128), "cpu", torch.float32)
    layer = whole.model.layers[0].mlp.experts
    part = parts_of(whole, 4, False)[3].model.layers[0].mlp.experts
    every = torch.arange(4)
    gate_up, down = (getattr(layer, name)[every] for name in ("gate_up_proj", "down_proj"))
    assert torch.equal(part.gate_up_proj[every], gate_up[..., 192:])
    assert torch.equal(part.down_proj[every], down[:, 96:])
    with pytest.raises(ModelError, match=r"64 in blocks of 32 cannot be split .* or --ep$"):
        build_random(packed_fields(64), "meta", torch.float32, Ranks(0, 4))
