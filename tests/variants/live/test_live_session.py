"""What the app receives about a loaded model, and other settings for it."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from safetensors import safe_open

from decodescope.analyzer.capture.profiler_session import ProfilerSession
from decodescope.analyzer.errors import DecodescopeError, MissingRequirement, ModelError
from decodescope.analyzer.protocol.messages import Hello, WorkerConfig
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.variants import registry
from decodescope.variants.live.session import TorchSession
from decodescope.variants.measuring import preparation
from decodescope.variants.measuring.preparation import Prepared, prepare
from decodescope.variants.model.source import resolve_model, tiny_folder
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import Variant

CONFIG = WorkerConfig(variant="eager", batch=1, tokens=5, device="cpu")


def hello_of(loaded: Any, workload: DecodeWorkload) -> Hello:
    """The message as the app receives it."""
    session = TorchSession(Prepared(CONFIG, "cpu", loaded, workload), cast(Any, None), None)
    return msgspec.msgpack.decode(msgspec.msgpack.encode(session.hello()), type=Hello)


@pytest.mark.parametrize("sampling", [None, SamplingSettings(0.7, None, top_p=0.9, seed=3)])
def test_the_app_receives_the_sampling_settings(
    load_small: Callable[..., Any], sampling: SamplingSettings | None
) -> None:
    hello = hello_of(load_small("llama"), DecodeWorkload(1, 4, 5, "fp32", sampling))
    assert hello.sampling == sampling


def test_variants_that_cannot_run_this_model_say_why(
    load_small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(name: str, config: Any, workload: DecodeWorkload, device: str) -> None:
        if config["model_type"] != "qwen3":
            raise ModelError(f"{name}: no Qwen3")

    def build(*_: object) -> Any:
        raise AssertionError("nothing is built yet")

    built_in = (
        Variant("any", "runs everything", False, build),
        Variant("picky", "runs Qwen3", False, build, check),
        Variant("far", "runs elsewhere", True, build, check),
    )
    monkeypatch.setattr(registry, "_BUILT_IN", built_in)

    def reasons(model: str) -> list[str | None]:
        hello = hello_of(load_small(model), DecodeWorkload(1, 4, 5, "fp32"))
        return [info.unavailable for info in hello.variants]

    assert reasons("llama") == [None, "llama: no Qwen3", "needs a CUDA device"]
    assert reasons("qwen3") == [None, None, "needs a CUDA device"]


@pytest.fixture
def running() -> TorchSession:
    """A session of the bundled model."""
    config = WorkerConfig(variant="eager", batch=1, tokens=5, model="tiny", context=8, device="cpu")
    prepared = prepare(config, lambda stage: None)
    return TorchSession(prepared, ProfilerSession("cpu"), None)


@pytest.fixture
def small_checkpoint(build_small: Callable[..., Any], tmp_path: Path) -> Path:
    build_small("llama").save_pretrained(tmp_path)
    return tmp_path


def adopted(session: TorchSession, **changes: Any) -> list[str]:
    """The stages of a change of settings."""
    stages: list[str] = []
    settings = msgspec.structs.replace(session.settings, **changes)
    session.check(settings, "eager")
    session.adopt(settings, "eager", stages.append)
    return stages


def test_prompt_sampling_and_sizes_change_without_loading(running: TorchSession) -> None:
    model = running._prepared.loaded.model
    assert adopted(running, prompt="def f(x):", context=None, batch=3) == []
    ids = running.prompt(0)
    assert (running.batch, ids.shape[0]) == (3, 3)
    assert running.hello().context == ids.shape[1] != 8
    assert running.decode is not None
    assert running.decode(ids[0].tolist()) == "def f(x):"
    sampling = SamplingSettings(0.7, 5, None, 3)
    assert adopted(running, prompt=None, context=9, sampling=sampling, tokens=7) == []
    assert running.hello().sampling == sampling
    assert (running.hello().context, running.new_tokens) == (9, 7)
    assert running._prepared.loaded.model is model
    step = running.build("eager", lambda stage: None)
    step.prefill(running.prompt(0))
    assert step.step().shape == (3,)


def test_another_model_replaces_the_old_one(running: TorchSession, small_checkpoint: Path) -> None:
    before = running._prepared.loaded.model
    assert adopted(running, model=str(small_checkpoint)) == [f"loading {small_checkpoint}"]
    assert running.hello().model == str(small_checkpoint)
    assert before.device.type == "meta"
    assert adopted(running, model="tiny") == ["loading tiny"]
    assert running.hello().weights == "bundled"


def test_a_model_that_does_not_load_leaves_the_session_as_it_was(
    running: TorchSession, small_checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any, **__: Any) -> Any:
        raise MissingRequirement("not enough memory")

    monkeypatch.setattr(preparation, "load_model", full)
    with pytest.raises(MissingRequirement, match="memory"):
        adopted(running, model=str(small_checkpoint))
    assert running.settings.model == "tiny"
    monkeypatch.undo()
    stages: list[str] = []
    step = running.build("eager", stages.append)
    assert any("again" in stage for stage in stages)
    step.prefill(running.prompt(0))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "/no/such/folder"}, "there is no folder"),
        ({"model": "llama-3.2-1b@radnom"}, "llama-3.2-1b"),
        ({"batch": 0}, "--batch 0"),
        ({"context": 100_000}, "positions"),
        ({"context": None, "prompt": "x" * 20_000}, "positions"),
        ({"context": None, "prompt": ""}, "empty"),
        ({"sampling": SamplingSettings(0.7, None, 1.5, 0)}, "--top-p"),
    ],
)
def test_settings_that_cannot_run_are_refused_before_anything_is_dropped(
    running: TorchSession, changes: dict[str, Any], says: str
) -> None:
    with pytest.raises(DecodescopeError, match=says):
        adopted(running, **changes)
    assert running.prompt(0).shape == (1, 8)


def test_models_are_offered_with_their_size(running: TorchSession) -> None:
    models = {model.name: model for model in running.hello().models}
    weights = safe_open(tiny_folder() / "model.safetensors", "pt")
    shapes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118
    assert models["tiny"].parameters == sum(math.prod(shape) for shape in shapes)
    assert models["llama-3.2-1b"].parameters == models["llama-3.2-1b@random"].parameters
    assert all(resolve_model(name).name == name for name in models)
