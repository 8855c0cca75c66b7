"""Decode steps on a CUDA device, as far as the CPU cannot test them."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.errors import MissingRequirement
from decodescope.variants.listings import doctor_checks
from decodescope.variants.machine.environment import choose_device, environment
from decodescope.variants.machine.memory import memory_errors
from decodescope.variants.measuring.measure import measure_run, phases
from decodescope.variants.measuring.window import Subject
from decodescope.variants.model.loading import load_model
from decodescope.variants.model.prompts import make_prompt
from decodescope.variants.model.random_weights import build_random
from decodescope.variants.model.source import presets, resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import build_variant

pytestmark = [
    pytest.mark.gpu,
    # Warnings of torch.compile's own imports and of CUPTI are not ours.
    pytest.mark.filterwarnings("default"),
]

ARCHITECTURES = ("llama", "qwen2", "qwen3", "mistral")
VARIANTS = ("eager", "compiled")
CONTEXT = 11
NEW_TOKENS = 40

Load = Callable[..., Any]


def on_gpu(loaded: Any, dtype: torch.dtype) -> Any:
    loaded.model.to("cuda", dtype)
    return loaded


def decoded(step: Any, count: int) -> torch.Tensor:
    return torch.stack([step.step() for _ in range(count)], dim=1)


@contextmanager
def no_synchronisation() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_eager_equals_greedy_generation(
    load_small: Load, architecture: str, dtype: torch.dtype
) -> None:
    loaded = on_gpu(load_small(architecture, eos_token_id=None), dtype)
    workload = DecodeWorkload(2, CONTEXT, NEW_TOKENS)
    prompt = make_prompt(loaded, workload)
    expected = loaded.model.generate(
        prompt.cuda(),
        attention_mask=torch.ones_like(prompt).cuda(),
        max_new_tokens=NEW_TOKENS,
        do_sample=False,
        pad_token_id=0,
    )[:, CONTEXT:]
    step = build_variant("eager", loaded, workload, "cuda")
    tokens = torch.cat([step.prefill(prompt)[:, None], decoded(step, NEW_TOKENS - 1)], dim=1)
    assert torch.equal(tokens, expected)


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_compiled_equals_eager_also_after_a_reset(
    load_small: Load, architecture: str, batch: int
) -> None:
    loaded = on_gpu(load_small(architecture), torch.float32)
    workload = DecodeWorkload(batch, CONTEXT, NEW_TOKENS, "fp32")
    prompt = make_prompt(loaded, workload)
    steps = {name: build_variant(name, loaded, workload, "cuda") for name in VARIANTS}
    firsts = {name: step.prefill(prompt) for name, step in steps.items()}
    assert torch.equal(firsts["eager"], firsts["compiled"])
    tokens = {name: decoded(step, NEW_TOKENS) for name, step in steps.items()}
    assert torch.equal(tokens["eager"], tokens["compiled"])

    compiled = steps["compiled"]
    for position in (CONTEXT + 17, CONTEXT):
        compiled.reset(position)
        assert compiled.position == position
        offset = position - CONTEXT
        assert torch.equal(decoded(compiled, 10), tokens["eager"][:, offset : offset + 10])
    compiled.prefill(prompt.flip(1))
    decoded(compiled, 5)
    assert torch.equal(compiled.prefill(prompt), firsts["eager"])
    assert torch.equal(decoded(compiled, NEW_TOKENS), tokens["eager"])


def test_compiled_can_be_built_many_times(load_small: Load) -> None:
    """As switching variants in the app does; recompilations must not pile up to their limit."""
    loaded = on_gpu(load_small("llama"), torch.float32)
    outputs = []
    workload = DecodeWorkload(1, 4, 8, "fp32")
    for _ in range(10):
        step = build_variant("compiled", loaded, workload, "cuda")
        step.prefill(torch.ones(1, 4, dtype=torch.int64))
        outputs.append(decoded(step, 8))
        del step
    assert all(torch.equal(output, outputs[0]) for output in outputs)


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_step_does_not_synchronise(load_small: Load, variant: str) -> None:
    loaded = on_gpu(load_small("llama"), torch.bfloat16)
    workload = DecodeWorkload(2, CONTEXT, NEW_TOKENS)
    step = build_variant(variant, loaded, workload, "cuda")
    step.prefill(make_prompt(loaded, workload))
    step.step()
    with no_synchronisation():
        for _ in range(NEW_TOKENS - 1):
            step.step()
        step.reset(CONTEXT + 2)
        step.step()


@pytest.mark.parametrize("variant", VARIANTS)
def test_returned_ids_do_not_change(load_small: Load, variant: str) -> None:
    loaded = on_gpu(load_small("qwen3"), torch.bfloat16)
    workload = DecodeWorkload(2, CONTEXT, NEW_TOKENS)
    step = build_variant(variant, loaded, workload, "cuda")
    returned = [step.prefill(make_prompt(loaded, workload))]
    seen = [returned[0].tolist()]
    for _ in range(NEW_TOKENS):
        returned.append(step.step())
        seen.append(returned[-1].tolist())
    assert [ids.tolist() for ids in returned] == seen
    assert len({ids.data_ptr() for ids in returned}) == len(returned)


def events_of(path: Path, category: str) -> list[dict[str, Any]]:
    events = json.loads(path.read_bytes())["traceEvents"]
    return [event for event in events if event.get("cat") == category]


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_run_is_measured_and_its_window_links_every_kernel(
    load_small: Load, tmp_path: Path, variant: str
) -> None:
    loaded = on_gpu(load_small("llama"), torch.bfloat16)
    workload = DecodeWorkload(1, CONTEXT, NEW_TOKENS)
    session = ProfilerSession("cuda")
    session.warm_up()
    step = build_variant(variant, loaded, workload, "cuda")
    path = tmp_path / "window.json"
    prompt = make_prompt(loaded, workload)
    subject = Subject(loaded, workload, "cuda", variant)
    result = measure_run(step, subject, prompt, session, path)

    assert len(result.step_ns) == phases(NEW_TOKENS).timed
    assert len(result.output_token_ids[0]) == NEW_TOKENS
    assert min(result.step_ns) > 0
    kernels = events_of(path, "kernel")
    calls = events_of(path, "cuda_runtime") + events_of(path, "cuda_driver")
    launched = {event["args"]["correlation"] for event in calls}
    assert len(kernels) >= 3 * 10
    assert all(kernel["args"]["correlation"] in launched for kernel in kernels)
    names = [event["name"] for event in events_of(path, "user_annotation")]
    assert names.count("decode_step") == result.capture.steps == 3
    assert names.count("decode_lead") == result.capture.lead_steps == 1
    graph_launches = [call for call in calls if call["name"] == "cudaGraphLaunch"]
    if variant == "compiled":
        assert len(graph_launches) == 3 + 1
        own = {name for name in names if not name.startswith("## Call CompiledFxGraph")}
        assert own == {"decode_lead", "decode_step", "model", "sampling"}
    else:
        assert not graph_launches
        assert names.count("attention") == 3 * (3 + 1)


def test_windows_follow_one_another_on_the_gpu(load_small: Load, tmp_path: Path) -> None:
    loaded = on_gpu(load_small("llama"), torch.bfloat16)
    workload = DecodeWorkload(1, CONTEXT, NEW_TOKENS)
    session = ProfilerSession("cuda")
    prompt = make_prompt(loaded, workload)
    kernels: dict[str, list[int]] = {name: [] for name in VARIANTS}
    for name in (*VARIANTS, *VARIANTS):
        step = build_variant(name, loaded, workload, "cuda")
        for _ in range(2):
            path = tmp_path / "window.json"
            measure_run(step, Subject(loaded, workload, "cuda", name), prompt, session, path)
            kernels[name].append(len(events_of(path, "kernel")))
    for name, counts in kernels.items():
        assert min(counts) == max(counts) > 0, name


def test_random_weights_are_built_in_place() -> None:
    preset = presets()["qwen2.5-0.5b"]
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    model = build_random(preset.config, "cuda", torch.bfloat16)
    peak_bytes = torch.cuda.max_memory_allocated() - before
    assert {parameter.device.type for parameter in model.parameters()} == {"cuda"}
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    table_bytes = 2 * preset.config["vocab_size"] * preset.config["hidden_size"]
    assert peak_bytes < 2 * preset.parameters + 3 * table_bytes
    again = build_random(preset.config, "cuda", torch.bfloat16)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, again.state_dict()[name]), name


def test_a_checkpoint_is_loaded_onto_the_gpu() -> None:
    loaded = load_model(resolve_model("tiny"), "cuda", "bf16")
    parameters = list(loaded.model.parameters())
    assert {(p.device.type, p.dtype) for p in parameters} == {("cuda", torch.bfloat16)}


def test_running_out_of_memory_says_what_is_free() -> None:
    with (
        pytest.raises(MissingRequirement, match=r"[\d.]+ of [\d.]+ GiB are free") as caught,
        memory_errors("decoding with variant eager", "cuda"),
    ):
        torch.empty(1 << 48, dtype=torch.uint8, device="cuda")
    assert "\n" not in str(caught.value)
    assert torch.ones(4, device="cuda").sum().item() == 4


def test_the_environment_names_the_gpu() -> None:
    assert choose_device(None) == choose_device("cuda") == "cuda"
    facts = environment()
    for key in ("cuda", "gpu", "gpu_sms", "gpu_memory_bytes", "gpu_capability"):
        assert facts[key], key
    assert not [check for check in doctor_checks() if check.status == "fail"]
