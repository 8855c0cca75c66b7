"""Workloads that cannot fit in memory are refused before anything is allocated."""

from functools import cache
from types import SimpleNamespace

import pytest
import torch

from decodescope.analyzer.errors import MissingRequirement, ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.measuring.preparation import prepare
from decodescope.variants.model import workload_costs
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.skeleton import torch_dtype
from decodescope.variants.model.source import presets
from decodescope.variants.model.workload import DecodeWorkload, DType
from decodescope.variants.model.workload_costs import model_bytes, require_memory
from decodescope.variants.spec import VariantSpec

LLAMA = presets()["llama-3.1-8b"]
GB = 10**9


@cache
def llama() -> torch.nn.Module:
    return build_random(LLAMA.config, "meta", torch.bfloat16)


def refuse(
    monkeypatch: pytest.MonkeyPatch,
    workload: DecodeWorkload,
    device: str,
    gpu: int,
    host: int,
    spec: VariantSpec | None = None,
) -> str | None:
    """The refusal with `gpu` and `host` bytes free; None if the workload is accepted."""
    monkeypatch.setattr(workload_costs, "free_gpu_bytes", lambda: gpu)
    monkeypatch.setattr(workload_costs, "free_host_bytes", lambda: host)
    model = llama()
    try:
        require_memory("m", model, workload, device, model_bytes(model), spec)
    except MissingRequirement as error:
        return str(error)
    return None


def test_weights_cache_and_ids_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    # 32 layers of 8 heads of 128, K and V in two bytes: 131,072 bytes a position.
    workload = DecodeWorkload(batch=1000, context=900, new_tokens=100)
    cache = 131_072 * 1000 * 1000
    weights = 2 * LLAMA.parameters
    message = refuse(monkeypatch, workload, "cuda", cache + weights, 100 * GB)
    assert message is not None
    assert message.startswith("not enough GPU memory for m in bf16: batch 1,000 of 1,000 positions")
    assert "weights 16.1 GB, K and V 131 GB" in message
    # The prefill's gate and up, and its residual stream: 73,728 bytes a prompt token.
    assert refuse(monkeypatch, workload, "cuda", 214 * GB, 100 * GB) is not None
    assert refuse(monkeypatch, workload, "cuda", 216 * GB, 100 * GB) is None
    assert refuse(monkeypatch, workload, "cpu", 0, 216 * GB) is None
    # Ids become lists on the host, whatever the device.
    ids = refuse(monkeypatch, workload, "cuda", 216 * GB, 35 * 10**6)
    assert ids is not None
    assert ids.startswith("not enough memory")


def test_k_and_v_in_fp8_need_half(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = DecodeWorkload(batch=8, context=16_000, new_tokens=384)
    fp8 = VariantSpec("fused", cuda_graph=True, kv_format="fp8_e5m2")
    half = 65_536 * 8 * 16_384
    needed = 2 * LLAMA.parameters + half + 73_728 * 8 * 16_000 + 6 * 8 * 128_256
    assert refuse(monkeypatch, workload, "cuda", needed, 100 * GB, fp8) is None
    message = refuse(monkeypatch, workload, "cuda", needed - 1, 100 * GB, fp8)
    assert message is not None
    assert "K and V 8.59 GB" in message
    assert refuse(monkeypatch, workload, "cuda", needed + half - 1, 100 * GB) is not None


def test_a_quantised_variant_needs_less_to_decode_and_room_to_quantise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fp8 = VariantSpec("fused", weight_format="fp8_e4m3")
    small, large = DecodeWorkload(1, 90, 10), DecodeWorkload(100, 900, 100)
    bf16 = 2 * LLAMA.parameters
    # In each layer, and a scale for each row; lm_head, too, is not tied.
    matrices, rows, vocab, hidden = 218_103_808, 43_008, 128_256, 4096
    stored = bf16 - 32 * (matrices - 4 * rows) - vocab * (hidden - 4)
    layer = 2 * (matrices + 2 * hidden)

    def refused(workload: DecodeWorkload, gpu: int, spec: VariantSpec | None = fp8) -> str | None:
        return refuse(monkeypatch, workload, "cuda", gpu, 100 * GB, spec)

    # While it is quantised, the model and one layer are there.
    assert refused(small, bf16 + layer) is None
    message = refused(small, bf16 + layer - 1)
    assert message is not None
    assert f"(weights 16.1 GB, quantised {stored / GB:.2f} GB, K and V" in message
    # The prefill makes lm_head's matrix in bf16.
    low, high = bf16, 10 * bf16
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if refused(large, middle, None) else (low, middle)
    less = bf16 - stored - 2 * vocab * hidden
    assert refused(large, high, None) is None
    assert refused(large, high - less) is None
    assert refused(large, high - less - 1) is not None


@pytest.mark.parametrize(
    ("dtype", "gpu", "advice"),
    [
        # 61.1 GB in bf16, 31 GB with FP8 weights, which are made of those in bf16.
        ("fp32", 100, "; --dtype bf16, lower --batch, --context or --tokens, or choose a smaller"),
        ("bf16", 64, "; --variant fp8 (if the fused kernels run this model), lower --batch,"),
        ("bf16", 60, "; no format fits; choose a smaller model"),
    ],
)
def test_experts_that_do_not_fit_and_the_format_that_would(
    dtype: DType, gpu: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workload_costs, "free_gpu_bytes", lambda: gpu * GB)
    monkeypatch.setattr(workload_costs, "free_host_bytes", lambda: 500 * GB)
    workload = DecodeWorkload(32, 4000, 1000, dtype)
    model = build_random(presets()["qwen3-30b-a3b"].config, "meta", torch_dtype(dtype))
    with pytest.raises(MissingRequirement) as raised:
        require_memory("m", model, workload, "cuda", model_bytes(model))
    experts = {"fp32": "116", "bf16": "58.0"}[dtype]
    assert f", experts {experts} GB of them, K and V " in str(raised.value)
    assert advice in str(raised.value)


@pytest.mark.parametrize("field", ["num_attention_heads", "num_hidden_layers", "hidden_size"])
def test_an_architecture_without_countable_heads_is_refused(field: str) -> None:
    model = build_random(LLAMA.config, "meta", torch.bfloat16)
    fields = {**model.config.to_dict(), "layer_types": None, "num_key_value_heads": None}
    config = SimpleNamespace(**(fields | {"head_dim": None, field: None}))
    config.get_text_config = lambda decoder: config
    other = SimpleNamespace(config=config, dtype=torch.bfloat16)
    with pytest.raises(ModelError, match="a model of type llama reads cannot be counted"):
        require_memory("m", other, DecodeWorkload(), "cpu", 0)


@pytest.mark.parametrize(
    "asked", [{"batch": 1_000_000_000}, {"model": "llama-3.1-8b@random", "batch": 10_000_000}]
)
def test_nothing_is_loaded_for_a_batch_that_cannot_fit(
    asked: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_weights(*args: object) -> None:
        raise AssertionError("weights were loaded")

    monkeypatch.setattr("decodescope.variants.model.loading._load_checkpoint", no_weights)
    fields = {"variant": "eager", "batch": 1, "tokens": 8, "model": "tiny", "device": "cpu"}
    with pytest.raises(MissingRequirement, match=r"not enough memory for .* lower --batch"):
        prepare(WorkerConfig(**(fields | asked)), lambda stage: None)  # type: ignore[arg-type]
