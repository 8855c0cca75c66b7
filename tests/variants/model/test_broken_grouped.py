"""Checkpoints of 4 bits that are not what config.json says: one thing broken in each."""

from pathlib import Path
from typing import Any

import pytest
import torch

from decodescope.analyzer.errors import DecodescopeError, ModelError
from decodescope.variants.steps.fused.support import require_support
from tests.helpers.families import FAMILIES
from tests.variants.model.broken_checkpoints import (
    NOT_WHOLE,
    Change,
    Weights,
    cut,
    with_config,
    with_weights,
    without,
)
from tests.variants.model.grouped_checkpoints import LAYOUTS, save_packed
from tests.variants.model.test_grouped_checkpoints import load

DOWN = "model.layers.1.mlp.down_proj"
CT, CHANNELS = LAYOUTS["compressed-tensors"], LAYOUTS["compressed-tensors, channels"]
ASYMMETRIC = LAYOUTS["compressed-tensors in bf16, zero points"]
GPTQ, AWQ = LAYOUTS["GPTQ"], LAYOUTS["AWQ"]
ACTORDER = LAYOUTS["compressed-tensors, actorder group"]
SYMMETRIC, DESC_ACT = LAYOUTS["GPTQ, symmetric"], LAYOUTS["GPTQ, desc_act"]
NVFP4, MODELOPT = LAYOUTS["NVFP4 of compressed-tensors"], LAYOUTS["NVFP4 of ModelOpt"]
MXFP4 = LAYOUTS["MXFP4 of compressed-tensors"]
OTHER_FILES = "; use the files of one checkpoint"


def cut_down(end: str, rows: int) -> Change:
    """Keeps the first rows of a tensor."""

    def change(weights: Weights) -> None:
        name = f"{DOWN}.{end}"
        weights[name] = weights[name][:rows].clone()

    return with_weights(change)


def put(end: str, value: torch.Tensor) -> Change:
    return with_weights(lambda weights: weights.update({f"{DOWN}.{end}": value.clone()}))


def config_of(layout: Any, scheme: Any = None, **fields: Any) -> Change:
    """Other fields in the quantization_config, or in its scheme of weights."""
    config = dict(layout.config) | fields
    if scheme is not None:
        (group,) = config["config_groups"].values()
        config["config_groups"] = {"group_0": group | {"weights": group["weights"] | scheme}}
    return with_config(quantization_config=config)


def index(value: int) -> Change:
    """Another group for column 7."""

    def change(weights: Weights) -> None:
        weights[f"{DOWN}.g_idx"][7] = value

    return with_weights(change)


BROKEN: dict[str, tuple[Any, Change, str]] = {
    # The size of groups.
    "larger groups by config.json": (
        CT,
        config_of(CT, {"group_size": 64}),
        "q_proj.weight_scale is F16 [96, 3] in the weights and F16 or BF16 or F32 [96, 2] by "
        f"config.json (group_size 64){OTHER_FILES}",
    ),
    "channels by config.json": (
        CT,
        config_of(CT, {"strategy": "channel", "group_size": None}),
        "[96, 1] by config.json (strategy channel)",
    ),
    "groups by config.json": (
        CHANNELS,
        config_of(CHANNELS, {"strategy": "group", "group_size": 32}),
        "weight_scale is F16 [96, 1] in the weights",
    ),
    "GPTQ in other groups": (
        GPTQ,
        config_of(GPTQ, group_size=96),
        "q_proj.scales is F16 [3, 96] in the weights and F16 or BF16 or F32 [1, 96] by config.json"
        " (group_size 96)",
    ),
    "as many groups, not all whole": (
        CT,
        config_of(CT, {"group_size": 33}),
        "q_proj.weight_packed is of 96 columns in the weights and of whole groups by config.json "
        f"(group_size 33){OTHER_FILES}",
    ),
    "as many groups of AWQ": (
        AWQ,
        config_of(AWQ, group_size=33),
        "q_proj.qweight is of 96 columns in the weights and of whole groups by config.json",
    ),
    "AWQ in other groups": (AWQ, config_of(AWQ, group_size=-1), "config.json (group_size -1)"),
    "NVFP4 by config.json": (
        MXFP4,
        config_of(MXFP4, {"group_size": 16}),
        "weight_scale is U8 [96, 3] in the weights and F8_E4M3 [96, 6] by config.json "
        "(group_size 16)",
    ),
    "MXFP4 by config.json": (
        NVFP4,
        config_of(NVFP4, {"group_size": 32}),
        "and U8 [96, 3] by config.json (group_size 32)",
    ),
    # Packing.
    "half a matrix": (CT, cut_down("weight_packed", 48), f"{DOWN}.weight_packed is I32 [48, 20]"),
    "half the scales": (CT, cut_down("weight_scale", 48), f"{DOWN}.weight_scale is F16 [48, 5]"),
    "no scales": (CT, without(f"{DOWN}.weight_scale"), f"{DOWN}.weight_scale is missing"),
    "no codes": (
        CT,
        without(f"{DOWN}.weight_packed"),
        f"{DOWN}.weight_packed is missing in the weights and I32 [96, 20] by config.json (num_bits",
    ),
    "no codes of GPTQ": (
        GPTQ,
        without(f"{DOWN}.qweight"),
        f"{DOWN}.qweight is missing in the weights and I32 [20, 96] by config.json (bits 4)",
    ),
    "no codes of AWQ": (AWQ, without(f"{DOWN}.qweight"), f"{DOWN}.qweight is missing"),
    "no codes of ModelOpt": (
        MODELOPT,
        with_weights(lambda weights: weights.pop(f"{DOWN}.weight")),
        f"{DOWN}.weight is missing",
    ),
    "no codes of MXFP4": (
        MXFP4,
        without(f"{DOWN}.weight_packed"),
        f"{DOWN}.weight_packed is missing",
    ),
    "E2M1 of another type": (
        MXFP4,
        put("weight_packed", torch.zeros(96, 80, dtype=torch.int8)),
        f"{DOWN}.weight_packed is I8 [96, 80] in the weights and U8 [96, 80] by config.json",
    ),
    "codes of 8 bits": (
        CT,
        put("weight_packed", torch.zeros(96, 40, dtype=torch.int32)),
        f"{DOWN}.weight_packed is I32 [96, 40] in the weights and I32 [96, 20] by config.json "
        "(num_bits 4)",
    ),
    "words of another type": (
        CT,
        put("weight_packed", torch.zeros(96, 20)),
        f"{DOWN}.weight_packed is F32 [96, 20]",
    ),
    "another shape": (
        CT,
        put("weight_shape", torch.tensor([96, 152])),
        f"{DOWN}.weight_shape is [96, 152] in the weights and [96, 160] by config.json",
    ),
    "AWQ by config.json": (
        GPTQ,
        with_config(quantization_config=AWQ.config),
        "q_proj.qweight is I32 [12, 96] in the weights and I32 [96, 12] by config.json (bits 4)",
    ),
    "GPTQ by config.json": (
        AWQ,
        with_config(quantization_config=GPTQ.config),
        "I32 [12, 96] by config.json (bits 4)",
    ),
    "half of GPTQ's codes": (GPTQ, cut_down("qweight", 9), f"{DOWN}.qweight is I32 [9, 96]"),
    "half of GPTQ's zeros": (GPTQ, cut_down("qzeros", 2), f"{DOWN}.qzeros is I32 [2, 12]"),
    "half of AWQ's codes": (AWQ, cut_down("qweight", 80), f"{DOWN}.qweight is I32 [80, 12]"),
    "half of NVFP4's codes": (NVFP4, cut_down("weight_packed", 9), "weight_packed is U8 [9, 80]"),
    "no scale of an NVFP4 matrix": (
        NVFP4,
        without(f"{DOWN}.weight_global_scale"),
        f"{DOWN}.weight_global_scale is missing",
    ),
    "two scales of a ModelOpt matrix": (
        MODELOPT,
        put("weight_scale_2", torch.ones(2)),
        f"{DOWN}.weight_scale_2 is F32 [2]",
    ),
    "an infinite scale of a matrix": (
        MODELOPT,
        put("weight_scale_2", torch.tensor(torch.inf)),
        f"row 0 of {DOWN}.weight_scale has scales that are NaN or infinite",
    ),
    "an infinite divisor of a matrix": (
        NVFP4,
        put("weight_global_scale", torch.tensor([torch.inf])),
        f"row 0 of {DOWN}.weight_scale has scales that are NaN or infinite",
    ),
    "no number among scales of a matrix that is dequantised": (
        DESC_ACT,
        put("scales", torch.full((5, 96), torch.nan).half()),
        f"row 0 of {DOWN}.scales has scales that are NaN or infinite",
    ),
    "scales of inputs": (
        MODELOPT,
        put("pre_quant_scale", torch.ones(160)),
        "pre_quant_scale means scales of inputs",
    ),
    # Zero points.
    "no zero points by config.json": (
        ASYMMETRIC,
        config_of(ASYMMETRIC, {"symmetric": True}),
        "q_proj.weight_zero_point is there in the weights and not by config.json (symmetric true)",
    ),
    "zero points by config.json": (
        CT,
        config_of(CT, {"symmetric": False}),
        "q_proj.weight_zero_point is missing",
    ),
    "zero points of all rows": (
        ASYMMETRIC,
        put("weight_zero_point", torch.zeros(96, 5, dtype=torch.int32)),
        f"{DOWN}.weight_zero_point is I32 [96, 5] in the weights and I32 [12, 5] by config.json "
        "(symmetric false, group_size 32)",
    ),
    "GPTQ that is symmetric by config.json": (
        GPTQ,
        config_of(GPTQ, sym=True),
        "q_proj.qzeros holds other zero points than 8",
    ),
    "GPTQ of the other version": (
        SYMMETRIC,
        config_of(SYMMETRIC, checkpoint_format="gptq_v2"),
        "q_proj.qzeros holds other zero points than 8, and none of its own by config.json (sym",
    ),
    # Orders of columns.
    "a group twice": (
        DESC_ACT,
        index(3),
        f"{DOWN}.g_idx is no permutation of the groups of 160 columns by "
        "config.json (group_size 32)",
    ),
    "a group that is not there": (DESC_ACT, index(99), f"{DOWN}.g_idx is no permutation"),
    "a group below zero": (GPTQ, index(-1), f"{DOWN}.g_idx is no permutation"),
    "no order of columns": (
        DESC_ACT,
        without(f"{DOWN}.g_idx"),
        f"{DOWN}.g_idx is missing in the weights and one group for each column by config.json "
        f"(desc_act true){OTHER_FILES}",
    ),
    "no order of columns of compressed-tensors": (
        ACTORDER,
        without(f"{DOWN}.weight_g_idx"),
        f"{DOWN}.weight_g_idx is missing in the weights and one group for each column by "
        "config.json (actorder group)",
    ),
    "an order of other columns": (
        GPTQ,
        put("g_idx", torch.zeros(96, dtype=torch.int32)),
        f"{DOWN}.g_idx is I32 [96] in the weights and I32 or I64 [160] by config.json",
    ),
    # Mixed, and of nothing.
    "a matrix of GPTQ": (
        CT,
        put("qweight", torch.zeros(20, 96, dtype=torch.int32)),
        "qweight means packed weights",
    ),
    "a layer of no module": (
        CT,
        with_weights(lambda weights: weights.update({"moe.weight_packed": torch.ones(3)})),
        "moe.weight_packed means packed weights",
    ),
    "not quantised by config.json": (
        GPTQ,
        with_config(quantization_config=None),
        "lacks 14 tensors of the model",
    ),
    "half a file": (CT, cut("model.safetensors", 60_000), NOT_WHOLE),
}


@pytest.mark.parametrize(("layout", "break_it", "words"), BROKEN.values(), ids=list(BROKEN))
def test_it_is_refused_in_one_line(
    layout: Any, break_it: Change, words: str, tmp_path: Path
) -> None:
    save_packed(tmp_path, layout)
    break_it(tmp_path)
    with pytest.raises(DecodescopeError) as caught:
        load(tmp_path)
    message = str(caught.value)
    assert words in message
    assert caught.value.exit_code == 2
    assert "\n" not in message
    assert len(message) < 500 + 2 * len(str(tmp_path))


UNSUPPORTED: dict[str, tuple[Any, str]] = {
    "gptq of 3 bits": (GPTQ.config | {"bits": 3}, "with quantization_config.bits 3 (only"),
    "gptq for Marlin": (
        GPTQ.config | {"checkpoint_format": "marlin"},
        "quantization_config.checkpoint_format marlin (only",
    ),
    "gptq in no groups": (
        GPTQ.config | {"group_size": 0},
        "quantization_config.group_size 0 (only",
    ),
    "awq of another version": (
        AWQ.config | {"version": "gemv"},
        "quantization_config.version gemv (only",
    ),
    "awq without zero points": (
        AWQ.config | {"zero_point": False},
        "quantization_config.zero_point false (only",
    ),
    "modelopt's AWQ": (
        MODELOPT.config | {"quant_algo": "NVFP4_AWQ"},
        "quantization_config.quant_algo nvfp4_awq (only",
    ),
}


@pytest.mark.parametrize(("fields", "words"), UNSUPPORTED.values(), ids=list(UNSUPPORTED))
def test_other_layouts_are_named_before_weights_are_loaded(fields: Any, words: str) -> None:
    with pytest.raises(ModelError, match="the fused kernels cannot run a checkpoint") as caught:
        require_support("mine", FAMILIES["llama2"] | {"quantization_config": fields}, 1, "cpu")
    assert words in str(caught.value)


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=list(LAYOUTS))
def test_the_fused_kernels_take_every_layout(layout: Any) -> None:
    require_support("mine", FAMILIES["llama2"] | {"quantization_config": layout.config}, 1, "cpu")
