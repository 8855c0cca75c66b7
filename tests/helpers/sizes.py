"""Step sizes and GPUs for tests of tiles: those of public models, and any that kernels support."""

from hypothesis import strategies as st

from decodescope.variants.model.source import presets
from decodescope.variants.steps.fused.tiling.shapes import StepShapes
from decodescope.variants.steps.fused.tiling.target_gpu import TargetGpu

H200 = TargetGpu("NVIDIA H200", 132, 232_448, "580.95.05", "3.6.0", "0.1")
# What every GPU of compute capability 8.6 or 8.9 has; others have more.
SMALL_GPU = TargetGpu("NVIDIA L4", 58, 101_376, None, "3.6.0", "0.1")


def preset_shapes(
    name: str, batch: int = 1, capacity: int = 2048, element_bytes: int = 2
) -> StepShapes:
    """A public model's step in bf16 (2) or fp32 (4), or with FP8 weights (1)."""
    config = presets()[name].config
    experts = config.get("num_experts") or config.get("num_local_experts", 0)
    width = config.get("moe_intermediate_size", config["intermediate_size"])
    return StepShapes(
        hidden=config["hidden_size"],
        heads=config["num_attention_heads"],
        kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        intermediate=0 if experts else width,
        vocab=config["vocab_size"],
        batch=batch,
        capacity=capacity,
        activation_bytes=max(2, element_bytes),
        weight_bytes=element_bytes,
        head_bytes=element_bytes,
        kv_bytes=max(2, element_bytes),
        experts=experts,
        chosen=config.get("num_experts_per_tok") or config.get("top_k_experts", 0),
        expert_intermediate=width if experts else 0,
        shared_intermediate=config["intermediate_size"] if "enable_moe_block" in config else 0,
        other_kv_heads=config.get(
            "num_global_key_value_heads",
            config["num_key_value_heads"] if "global_head_dim" in config else 0,
        ),
        other_head_dim=config.get("global_head_dim", 0),
        input_width=config.get("hidden_size_per_layer_input", 0),
        inputs_width=config.get("hidden_size_per_layer_input", 0) * config["num_hidden_layers"],
    )


# The operations with a tile of a dense model.
DENSE_OPERATIONS = preset_shapes("llama-3.2-1b").operations


@st.composite
def any_shapes(draw: st.DrawFn) -> StepShapes:
    """Any step that the kernels support, mostly of sizes that no model has."""
    kv_heads = draw(st.integers(1, 32))
    activation_bytes = draw(st.sampled_from((2, 4)))
    sizes = st.sampled_from((1, activation_bytes))
    experts = draw(st.one_of(st.just(0), st.integers(1, 300)))
    heads = kv_heads * draw(st.integers(1, 32))
    # More than 16 queries of 512 float32 elements need a GPU with more shared memory.
    groups = [each for each in range(1, 17) if heads % each == 0]
    other_kv_heads = draw(st.sampled_from((0, *(heads // each for each in groups))))
    return StepShapes(
        hidden=draw(st.integers(1, 20_000)),
        heads=heads,
        kv_heads=kv_heads,
        head_dim=2 * draw(st.integers(16, 128)),
        intermediate=draw(st.integers(0 if experts else 1, 60_000)),
        vocab=draw(st.integers(1, 300_000)),
        batch=draw(st.integers(1, 64)),
        capacity=draw(st.integers(1, 200_000)),
        activation_bytes=activation_bytes,
        weight_bytes=draw(sizes),
        head_bytes=draw(sizes),
        kv_bytes=draw(sizes),
        experts=experts,
        chosen=draw(st.integers(1, experts)) if experts else 0,
        expert_intermediate=draw(st.integers(1, 60_000)) if experts else 0,
        shared_intermediate=draw(st.integers(0, 60_000)) if experts else 0,
        input_width=draw(st.one_of(st.just(0), st.integers(1, 1000))),
        inputs_width=draw(st.one_of(st.just(0), st.integers(1, 20_000))),
        other_kv_heads=other_kv_heads,
        other_head_dim=2 * draw(st.integers(16, 256)) if other_kv_heads else 0,
    )
