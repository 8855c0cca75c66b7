"""Which range each kernel call of generated code belongs to."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.annotations import range_paths
from decodescope.variants.steps.compiled_step import StaticStep
from decodescope.variants.steps.decode_step import CallSite
from decodescope.variants.steps.inductor_origins import (
    SourceNode,
    call_sites,
    range_of,
    source_nodes,
)
from tests.helpers import compiled_code


def test_every_call_of_a_real_model_is_placed() -> None:
    sites = call_sites(compiled_code.WRAPPER, compiled_code.NODES)
    found = [
        (site.operator.removeprefix("triton_")[:3] if "triton_" in site.operator else site.operator)
        for site in sites
    ]
    assert (
        list(zip(found, (site.path for site in sites), strict=True))
        == compiled_code.expected_sites()
    )


@given(st.data())
def test_damaged_code_raises_nothing_and_adds_no_calls(data: st.DataObject) -> None:
    lines = compiled_code.WRAPPER.splitlines()
    gone = data.draw(st.sets(st.integers(2, len(lines) - 1), max_size=40))
    cut = data.draw(st.integers(0, len(compiled_code.WRAPPER)))
    text = "\n".join(line for number, line in enumerate(lines) if number not in gone)[:cut]
    sites = call_sites(text, compiled_code.NODES)
    assert len(sites) <= 292
    known = {path for _, path in compiled_code.expected_sites()} | {""}
    parts = {part for path in known for part in path.rpartition("/")[2].split("+")}
    assert {part for site in sites for part in site.path.rpartition("/")[2].split("+")} <= parts


def wrapper(*calls: tuple[str, str]) -> str:
    """Generated code with these source nodes above these calls, as methods are written."""
    body = "".join(
        f"            # Topologically Sorted Source Nodes: [{nodes}], Original ATen: [aten.mm]\n"
        f"            stream0 = get_raw_stream(0)\n            {line}\n"
        for nodes, line in calls
    )
    return f"class Runner:\n    def call(self, args):\n        args.clear()\n{body}\nrunner = 1\n"


NODES = {
    "embed": SourceNode("embedding", False),
    "angle": SourceNode("rotary", False),
    "mask": SourceNode("", False),
    "norm_0": SourceNode("layer.0/input_norm", False),
    "norm_0b": SourceNode("layer.0/input_norm", False),
    "q_proj": SourceNode("layer.0/attention", True),
    "rope": SourceNode("layer.0/attention", False),
    "rope_1": SourceNode("layer.1/attention", False),
    "residual": SourceNode("layer.0", False),
    "post": SourceNode("layer.0/post_attention_norm", False),
    "act": SourceNode("layer.0/mlp", False),
    "down": SourceNode("layer.0/mlp", True),
    "norm_1": SourceNode("layer.1/input_norm", False),
    "final": SourceNode("final_norm", False),
}
FUSED = "triton_poi_fused_7.run(arg0_1, buf0, 1, stream=stream0)"
PRODUCT = "extern_kernels.mm(buf0, arg1_1, out=buf1)"


def paths_of(*calls: tuple[str, str]) -> list[str]:
    return [site.path for site in call_sites(wrapper(*calls), NODES)]


@pytest.mark.parametrize(
    ("nodes", "path"),
    [
        ("norm_0", "layer.0/input_norm"),
        ("embed, norm_0", "embedding+input_norm"),
        ("rope, residual, post", "layer.0/attention+post_attention_norm"),
        ("act, residual, norm_1", "layer.0/mlp+input_norm"),
        ("act, final", "layer.0/mlp+final_norm"),
        ("residual, norm_1", "layer.1/input_norm"),
        ("down, residual, norm_1", "layer.1/input_norm"),
        ("residual", "layer.0"),
        ("angle", "rotary"),
        ("mask, angle, rope", "layer.0/attention"),
        ("mask", ""),
        ("rope, rope_1", ""),
        ("act, nobody_knows", ""),
        ("", ""),
    ],
)
def test_what_a_fused_kernel_belongs_to(nodes: str, path: str) -> None:
    assert paths_of((nodes, FUSED)) == [path]


def test_a_product_belongs_where_it_is_and_not_where_its_inputs_come_from() -> None:
    assert paths_of(("embed, norm_0, q_proj", PRODUCT)) == ["layer.0/attention"]
    assert paths_of(("q_proj, down", PRODUCT)) == ["layer.0/mlp"]
    # A library call for a node that is no known product.
    assert paths_of(("norm_0, rope", PRODUCT)) == ["layer.0/attention"]


def test_what_is_computed_again_does_not_count() -> None:
    first = ("embed, norm_0", FUSED)
    assert paths_of(first, ("embed, residual, post", FUSED)) == [
        "embedding+input_norm",
        "layer.0/post_attention_norm",
    ]
    # Nothing new: a second kernel for the same nodes, or one for some of them.
    assert paths_of(first, first, ("norm_0", FUSED)) == [
        "embedding+input_norm",
        "embedding+input_norm",
        "layer.0/input_norm",
    ]
    # What a product read was computed by somebody else: it does not count as computed.
    assert paths_of(("norm_0b, q_proj", PRODUCT), ("norm_0b", FUSED)) == [
        "layer.0/attention",
        "layer.0/input_norm",
    ]


def test_a_call_without_a_comment_of_its_own_has_no_path() -> None:
    text = wrapper(("norm_0", FUSED)).replace("\nrunner", f"            {PRODUCT}\nrunner")
    assert call_sites(text, NODES) == (
        CallSite("triton_poi_fused_7", "layer.0/input_norm"),
        CallSite("aten::mm", ""),
    )


@pytest.mark.parametrize(
    ("line", "operator"),
    [
        ("triton_red_fused_add_0.run(x)", "triton_red_fused_add_0"),
        ("extern_kernels.addmm(x)", "aten::addmm"),
        ("buf3 = extern_kernels.bias_addmm(x)", "aten::addmm"),
        ("buf3 = torch.ops.aten._flash_attention.default(x)", "aten::_flash_attention"),
        ("torch.ops.mylib.fast_norm.out(x)", "mylib::fast_norm"),
    ],
)
def test_operators_are_called_as_a_profile_calls_them(line: str, operator: str) -> None:
    assert call_sites(wrapper(("norm_0", line)), NODES) == (
        CallSite(operator, "layer.0/input_norm"),
    )


@pytest.mark.parametrize(
    "line",
    [
        "assert_size_stride(buf1, (1, 2), (2, 1), 'torch.ops.aten.mm.default')",
        "buf2 = empty_strided_cuda((1, 2), (2, 1), torch.bfloat16)",
        "del triton_buffer",
    ],
)
def test_other_lines_are_no_calls(line: str) -> None:
    assert call_sites(wrapper(("norm_0", line)), NODES) == ()


def test_the_function_of_older_versions_is_read_and_what_follows_it_is_not() -> None:
    """There `call` is a function of the module."""
    method = wrapper(("norm_0", FUSED))
    function = "\n".join(line[4:] for line in method.splitlines()[1:-1])
    later = f"\n\ndef benchmark():\n    # Topologically Sorted Source Nodes: [act]\n    {PRODUCT}\n"
    assert call_sites(function + later, NODES) == call_sites(method, NODES)
    assert call_sites("", NODES) == call_sites("def call(args):", NODES) == ()


@pytest.mark.parametrize(
    ("modules", "path"),
    [
        (["L['self']._model", "L['self']._model.model.layers.0.self_attn.q_proj"], "layer.0/a"),
        (["L['fn'].__self__._model.model.layers[0].self_attn"], "layer.0/a"),
        (["L['self']._model.model.layers['1']"], "layer.1"),
        (["L['self']._model._modules['model']._modules['layers']._modules['1'].mlp"], "layer.1/m"),
        (["L['self']._model", "L['self']._model.model.layers.10"], ""),
        ([], ""),
    ],
)
def test_modules_as_dynamo_writes_them(modules: list[str], path: str) -> None:
    paths = {"model.layers.0.self_attn": "layer.0/a", "model.layers.1": "layer.1"}
    paths["model.layers.1.mlp"] = "layer.1/m"
    if modules and modules[-1].endswith("q_proj"):
        modules.insert(1, modules[-1].removesuffix(".q_proj"))
    assert range_of(modules, paths) == path


# A norm of heads, and a window: what the others have is traced with these.
@pytest.mark.parametrize("architecture", ["qwen3", "mistral"])
def test_dynamos_nodes_know_their_ranges(load_small: Callable[..., Any], architecture: str) -> None:
    """As this version of torch traces them: counted against the model's own modules."""
    torch._dynamo.reset()
    loaded = load_small(architecture)
    traced: dict[str, SourceNode] = {}

    def backend(graph: torch.fx.GraphModule, inputs: object) -> Any:
        traced.update(source_nodes(graph.graph, range_paths(loaded.model)))
        return graph.forward

    def compile_traced(forward: Any) -> Any:
        return torch.compile(forward, backend=backend, fullgraph=True, dynamic=False)

    step = StaticStep(loaded, DecodeWorkload(1, 4, 3, "fp32"), compile_traced)
    step.prefill(torch.ones(1, 4, dtype=torch.int64))
    step.step()
    torch._dynamo.reset()
    products = [node.path for node in traced.values() if node.is_product]
    for number in range(3):
        attention = products.count(f"layer.{number}/attention")
        # Four projections and the attention itself.
        assert attention == 5, number
        assert products.count(f"layer.{number}/mlp") == 3, number
    assert products.count("lm_head") == 1
    ranges = {node.path for node in traced.values()}
    expected = set(range_paths(loaded.model).values())
    assert expected <= ranges
    assert ranges <= expected | {""}
