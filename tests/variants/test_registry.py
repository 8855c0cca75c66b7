import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from decodescope.analyzer.errors import VARIANTS_GROUP, InputError, MissingRequirement, ModelError
from decodescope.variants import registry
from decodescope.variants.listings import variants_table
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.registry import (
    Variant,
    available_variants,
    build_variant,
    find_variant,
    is_interpreted,
    require_variant,
)
from decodescope.variants.spec import NARROW_WEIGHTS
from decodescope.variants.steps.eager_step import EagerStep


def build_nothing(loaded: Any, workload: DecodeWorkload, device: str) -> Any:
    return ("built", loaded.name, workload.batch, device)


def build_eager(loaded: Any, workload: DecodeWorkload, device: str) -> EagerStep:
    return EagerStep(loaded, workload)


GOOD = Variant("mine", "my own step", False, build_eager)
NOTHING = Variant("nothing", "no step at all", False, build_nothing)
LISTED = [word for word, stored in NARROW_WEIGHTS.items() if stored.listed and word != "w8a8"]
NARROW = (*LISTED, "kv_fp8_e4m3", "w8a8")
ON_GPU = Variant("mine-gpu", "my own step on a GPU", True, build_nothing)
TAKEN = Variant("eager", "not the real one", False, build_nothing)


@pytest.fixture
def packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Installed packages: two with good variants, and every way to be broken."""
    module = ModuleType("third_party_steps")
    module.__dict__.update(good=GOOD, nothing=NOTHING, on_gpu=ON_GPU, taken=TAKEN, wrong=42)
    monkeypatch.setitem(sys.modules, "third_party_steps", module)

    def entry(name: str, value: str) -> EntryPoint:
        return EntryPoint(name, value, VARIANTS_GROUP)

    installed = [
        entry("wrong", "third_party_steps:wrong"),
        entry("mine", "third_party_steps:good"),
        entry("absent", "third_party_gone:variant"),
        entry("nothing", "third_party_steps:nothing"),
        entry("mine-gpu", "third_party_steps:on_gpu"),
        entry("shadow", "third_party_steps:taken"),
    ]

    def entry_points(group: str) -> list[EntryPoint]:
        assert group == "decodescope.variants"
        return installed

    monkeypatch.setattr(registry, "entry_points", entry_points)


@pytest.mark.parametrize("interpreting", [False, True])
def test_built_in_variants_by_device(interpreting: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "interpreting", lambda: interpreting)
    needs = "needs a CUDA device"
    switch = f"{needs}, or TRITON_INTERPRET=1 to check tokens and accuracy on the CPU"
    assert {info.name: info.unavailable for info in available_variants("cpu")} == {
        "eager": None,
        "compiled": needs,
        "fused": None if interpreting else switch,
        "fused+graph": f"{needs}; Triton's interpreter can run fused",
    } | {
        f"fused+graph+{name}": f"{needs}; Triton's interpreter can run fused+{name}"
        for name in NARROW
    }
    assert all(info.unavailable is None for info in available_variants("cuda"))
    interpreted = [info.name for info in available_variants("cpu") if info.interpreted]
    assert interpreted == (["fused"] if interpreting else [])
    table = Console(width=200, file=StringIO())
    table.print(variants_table(available_variants("cpu"), "cpu"))
    assert ("interpreted: tokens and accuracy" in table.file.getvalue()) == interpreting  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["fused", "fused-rope-pdl", "fused+bf16", "fused+int8"])
def test_fused_variants_without_a_graph_are_interpreted_on_the_cpu(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "interpreting", lambda: True)
    assert require_variant(name, "cpu").name == name
    assert is_interpreted(name, "cpu")
    assert not is_interpreted(name, "cuda")
    assert not is_interpreted("eager", "cpu")
    graphed = name.replace("fused", "fused+graph")
    with pytest.raises(MissingRequirement, match=re.escape(f"interpreter can run {name}; choose")):
        require_variant(graphed, "cpu")


@pytest.mark.usefixtures("packages")
def test_packages_add_variants_and_broken_ones_hide_nothing() -> None:
    listed = {info.name: info.unavailable for info in available_variants("cpu")}
    own = ["eager", "compiled", "fused", "fused+graph", *(f"fused+graph+{name}" for name in NARROW)]
    assert list(listed) == [*own, "mine", "mine-gpu", "nothing", "absent", "shadow", "wrong"]
    assert listed["eager"] is None
    assert listed["mine"] is None
    assert listed["mine-gpu"] == "needs a CUDA device"
    assert "No module named 'third_party_gone'" in str(listed["absent"])
    assert "'eager' is taken" in str(listed["shadow"])
    assert "is a int, not a decodescope Variant" in str(listed["wrong"])
    assert find_variant("eager") is not TAKEN
    with pytest.raises(InputError, match="variant absent: cannot be loaded"):
        find_variant("absent")


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no words")


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (SystemExit(3), "cannot be loaded: SystemExit: 3"),
        (SystemExit(), "cannot be loaded: SystemExit"),
        (GeneratorExit("gone"), "cannot be loaded: GeneratorExit: gone"),
        (RecursionError("deep\nand more"), "cannot be loaded: RecursionError: deep"),
        (Unspeakable(), "cannot be loaded: Unspeakable"),
        (type("Own", (BaseException,), {})("odd"), "cannot be loaded: Own: odd"),
    ],
)
def test_whatever_the_import_of_a_package_raises_hides_nothing(
    error: BaseException, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Entry:
        name, value = "odd", "odd_package:variant"

        def load(self) -> Variant:
            raise error

    monkeypatch.setattr(registry, "entry_points", lambda group: [Entry()])
    *own, odd = available_variants("cpu")
    assert {"eager", "compiled", "fused"} <= {info.name for info in own}
    assert (odd.name, odd.summary, odd.unavailable) == ("odd", "from odd_package:variant", said)
    assert find_variant("eager").name == "eager"


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (lambda: sys.exit(3), "its function `missing` failed: SystemExit: 3"),
        (lambda: 1 / 0, "its function `missing` failed: ZeroDivisionError: division by zero"),
        (lambda: 42, "its function `missing` returned a int, not a text"),
    ],
)
def test_a_variant_that_cannot_say_what_it_lacks(
    missing: Callable[[], Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = Variant("odd", "an odd one", False, build_nothing, missing=missing)
    monkeypatch.setattr(registry, "_installed", lambda: ([odd], []))
    assert available_variants("cpu")[-1].unavailable == said
    with pytest.raises(MissingRequirement, match="odd"):
        require_variant("odd", "cpu")


@pytest.mark.parametrize(
    "fields",
    [
        {"name": 3},
        {"name": ""},
        {"name": "two words"},
        {"name": " blank"},
        {"summary": None},
        {"summary": "a\nb"},
        {"build": 3},
        {"check": 3},
    ],
)
def test_a_variant_of_odd_parts_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"^variant "):
        Variant(**({"name": "odd", "summary": "s", "requires_cuda": False, "build": str} | fields))


@pytest.mark.usefixtures("packages")
def test_a_packages_variant_is_built(load_small: Callable[..., Any]) -> None:
    loaded, workload = load_small("llama"), DecodeWorkload(3, 4, 5)
    step = build_variant("mine", loaded, workload, "cpu")
    assert isinstance(step, EagerStep)
    with pytest.raises(InputError, match="variant nothing: its build returned a tuple, not a Dec"):
        build_variant("nothing", loaded, workload, "cpu")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("eagre", "did you mean eager"),
        ("complied", "did you mean compiled"),
        ("zzz", "known: eager, compiled, fused, fused\\+graph"),
        ("fused+fp8_e4m4", "did you mean fp8_e4m3"),
        ("fused-atention", "did you mean attention"),
        ("compiled+graph", "already replays"),
    ],
)
def test_what_cannot_be_built_is_bad_input(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_variant(name)


@pytest.mark.parametrize(
    ("name", "canonical", "words"),
    [
        ("fused", "fused", "five launches a layer (a batch: seven)"),
        ("fused+graph", "fused+graph", "CUDA graph"),
        ("fused-pdl-rope", "fused-rope-pdl", "without rope, pdl"),
        ("fused-rope+graph", "fused+graph-rope", "without rope, replayed"),
        ("fused+bf16", "fused+bf16", "launches"),
        ("fused+head16+int8", "fused+int8+head16", "weights in INT8"),
        ("fused+kv_fp8_e5m2-rope", "fused+kv_fp8_e5m2-rope", "K and V in FP8 (E5M2)"),
        ("fused+fp8_e5m2_cast", "fused+fp8_e5m2_cast", "E5M2 without scales"),
        (
            "fp8",
            "fused+graph+fp8_e4m3",
            r"weights in FP8 (E4M3), replayed as one CUDA graph a token",
        ),
        ("fp8", "fused+graph+fp8_e4m3", "(short name: fp8)"),
        ("int8", "fused+graph+int8", "(short name: int8)"),
        ("w8a8", "fused+graph+w8a8", "(short name: w8a8)"),
        (
            "fused+w8a8",
            "fused+w8a8",
            "nine launches a layer, weights and activations in FP8 (E4M3)",
        ),
        ("int4", "fused+graph+int4", "seven launches a layer, weights in INT4"),
        ("fused+w8a8-norm", "fused+w8a8-norm", "without norm, weights and activations in FP8"),
    ],
)
def test_every_combination_of_fused_kernels_has_a_name(
    name: str, canonical: str, words: str
) -> None:
    variant = find_variant(name)
    assert variant.name == canonical
    assert words in variant.summary
    assert variant.requires_cuda
    assert find_variant(canonical).name == canonical


def test_a_short_name_is_taken(packages: None, monkeypatch: pytest.MonkeyPatch) -> None:
    module = sys.modules["third_party_steps"]
    module.__dict__["good"] = Variant("fp8", "not the real one", False, build_nothing)
    listed = {info.name: info.unavailable for info in available_variants("cpu")}
    assert "'fp8' is taken" in str(listed["mine"])
    assert find_variant("fp8").name == "fused+graph+fp8_e4m3"


def test_weights_of_another_dtype_than_the_runs_are_refused() -> None:
    check = find_variant("fused+fp16").check
    assert check is not None
    llama = {"model_type": "llama", "hidden_size": 64, "num_attention_heads": 2}
    with pytest.raises(InputError, match="pass --dtype fp16"):
        check("some", llama, DecodeWorkload(dtype="bf16"), "cpu")
    check("some", llama, DecodeWorkload(dtype="fp16"), "cpu")


@pytest.mark.parametrize(
    ("config", "batch", "error", "words"),
    [
        ({"model_type": "gpt2"}, 1, ModelError, "some: .*model_type gpt2"),
        ({"model_type": "llama", "hidden_size": 64}, 65, InputError, "--batch 65"),
    ],
)
def test_fused_kernels_say_what_they_cannot_run(
    config: dict[str, Any], batch: int, error: type[Exception], words: str
) -> None:
    llama = {"num_attention_heads": 2, "num_key_value_heads": 1}
    for name in ("fused", "fused+graph-rope"):
        check = find_variant(name).check
        assert check is not None
        with pytest.raises(error, match=words):
            check("some", config | llama, DecodeWorkload(batch), "cpu")


def test_a_variant_is_asked_whether_it_runs_this_model(
    load_small: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def check(name: str, config: Any, workload: DecodeWorkload, device: str) -> None:
        raise ModelError(f"{name}: {config['num_hidden_layers']} layers, batch {workload.batch}")

    picky = Variant("picky", "refuses everything", False, build_nothing, check)
    monkeypatch.setattr(registry, "_BUILT_IN", (picky,))
    with pytest.raises(ModelError, match="llama: 3 layers, batch 2"):
        build_variant("picky", load_small("llama"), DecodeWorkload(2, 4, 5), "cpu")


def test_building_checks_device_and_length(load_small: Callable[..., Any]) -> None:
    loaded = load_small("llama")
    with pytest.raises(MissingRequirement, match="compiled: needs a CUDA device"):
        build_variant("compiled", loaded, DecodeWorkload(1, 4, 5), "cpu")
    with pytest.raises(ModelError, match="allows 256 positions"):
        build_variant("eager", loaded, DecodeWorkload(1, 250, 7), "cpu")


@pytest.mark.parametrize(
    ("name", "summary", "build"),
    [("two words", "x", build_nothing), ("", "x", build_nothing), ("a", "", build_nothing)],
)
def test_a_variant_validates_itself(name: str, summary: str, build: Any) -> None:
    with pytest.raises(InputError):
        Variant(name, summary, False, build)
    with pytest.raises(InputError, match="not callable"):
        Variant("a", "x", False, None)  # type: ignore[arg-type]
    for wrong in ({"check": 3}, {"check_model": 3}):
        with pytest.raises(InputError, match=f"its {next(iter(wrong))} is not callable"):
            Variant("a", "x", False, build_nothing, **wrong)  # type: ignore[arg-type]


def test_listing_variants_imports_no_torch(repository: Path) -> None:
    code = (
        "import sys; from decodescope.variants.registry import available_variants; "
        "assert available_variants('cpu'); "
        "sys.exit(any(name in sys.modules for name in ('torch', 'transformers')))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=repository / "src", check=False)
    assert done.returncode == 0
