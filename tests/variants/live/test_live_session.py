"""The first message to the app: the loaded model, before a variant is built."""

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

from decodescope.analyzer.errors import ModelError
from decodescope.analyzer.protocol import Hello, WorkerConfig
from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.variants import registry
from decodescope.variants.live.session import TorchSession
from decodescope.variants.measuring.preparation import Prepared
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import Variant

CONFIG = WorkerConfig("eager", 1, 5, device="cpu")


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
