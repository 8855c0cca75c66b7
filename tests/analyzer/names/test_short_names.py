"""Short names: what engineers call a kernel, of real names and of hostile ones."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer import load
from decodescope.analyzer.names.fitted_names import short_kernels
from decodescope.analyzer.names.rules import (
    FAMILIES,
    KINDS,
    OTHER_OPERATION,
    ROLES,
    UNKNOWN,
    bundled_document,
    kernel_meaning,
)
from decodescope.analyzer.names.short_names import readable_kernel, short_name
from decodescope.analyzer.recordings.bundled import bundled_recordings
from decodescope.analyzer.text.plain import plain_line
from tests.analyzer.names.engine_names import ENGINE_NAMES, EngineName
from tests.helpers.hostile import HOSTILE, SHOWN, anything
from tests.helpers.recorded.decode_ops import recorded_steps

OPERATIONS = {row["operation"] for row in bundled_document()["operation"]} | {OTHER_OPERATION}
COMMUNICATIONS = {
    "expert exchange",
    "NVSHMEM",
    "MSCCL++",
    "NCCL/RCCL",
    "custom collective",
    "copy between GPUs",
}
CELLS = 200


@pytest.fixture(scope="module")
def tables(repository) -> dict[str, list[str]]:
    """The names of the GPU ops of every bundled recording, foreign trace and recorded step."""
    shared = repository.parent / "shared/traces"
    paths = [*bundled_recordings(), *shared.glob("*.json.gz"), *shared.glob("*.sqlite")]
    paths += sorted((repository / "tests/data").glob("h200_*replays.json.gz"))
    found = {path.name: _op_names(load(path)) for path in paths}
    found |= {case: sorted(set(step.names)) for case, step in recorded_steps().items()}
    found["engines"] = [one.name for one in ENGINE_NAMES]
    return found


def _op_names(trace) -> list[str]:
    return sorted({trace.names[name] for name in set(trace.ops.name.tolist())})


@pytest.mark.parametrize("known", ENGINE_NAMES, ids=lambda one: one.short)
def test_names_of_engines(known: EngineName) -> None:
    meaning = kernel_meaning(known.name)
    assert short_name(known.name) == known.short
    assert (meaning.kind, meaning.family) == (known.kind, known.family)
    assert (meaning.operation, meaning.communication) == (known.operation, known.communication)


def test_every_recorded_name_has_one_meaning(tables: dict[str, list[str]]) -> None:
    for name in {name for names in tables.values() for name in names}:
        meaning = kernel_meaning(name)
        assert meaning.kind in {*KINDS, UNKNOWN}
        assert meaning.family in FAMILIES
        assert meaning.role in {*ROLES, None}
        communicates = meaning.communication is not None
        assert communicates == (meaning.kind == "communication") == (meaning.operation is not None)
        assert not communicates or meaning.communication in COMMUNICATIONS
        assert not communicates or meaning.operation in OPERATIONS


def test_short_names_of_a_table_are_distinct_and_no_longer_than_needed(
    tables: dict[str, list[str]],
) -> None:
    for names in tables.values():
        shown = short_kernels(names, CELLS)
        assert len(set(shown.values())) == len(names)
        for name in names:
            assert len(short_name(name)) <= len(readable_kernel(name))
            assert short_name(short_name(name)) == short_name(name)


def test_a_short_name_says_only_what_the_name_says(tables: dict[str, list[str]]) -> None:
    """Words and numbers of a short name are in the name, but for those of templates and dtypes."""
    templates = " ".join(re.sub(r"{.*?}", " ", row["name"]) for row in bundled_document()["name"])
    added = {*_parts(templates), *_parts("bf16 f16 f32 f64 i64 i32 i16")}
    for name in {name for names in tables.values() for name in names}:
        letters = readable_kernel(name).lower()
        missing = {part for part in _parts(short_name(name)) - added if part not in letters}
        assert not missing, name


def _parts(text: str) -> set[str]:
    """The words and numbers of a text, in lower case."""
    return {part.lower() for part in re.findall(r"[a-z]+|[A-Z][a-z]*|[0-9]+", text)}


@given(anything | st.text("ab_<>:,() [k]{}ernl", max_size=60))
def test_any_name_has_a_short_name_on_one_line(name: str) -> None:
    short = short_name(name)
    assert plain_line(short) == short
    assert bool(short) == bool(plain_line(name))
    assert len(short) <= len(readable_kernel(name))


def test_what_is_no_function_stays_whole() -> None:
    assert short_name(HOSTILE) == SHOWN
    names = (
        "mystery",
        "a name of several words",
        "[CUDA memcpy PtoP]",
        "a,b(c)",
        "_",
        "",
    )
    for name in names:
        assert short_name(name) == name


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("void whatever()", "whatever"),
        ("void a::b<int>::c_kernel<d::e, 4>(f, g)", "c"),
        ("ns::outer::kernel<float>(int)", "outer"),
        ("void (anonymous namespace)::two_kernel_inplace<c10::BFloat16>(x)", "two_kernel_inplace"),
        ("a_kernel_kernel", "a"),
        ("kernel", "kernel"),
        ("_kernel", "kernel"),
        ("std::enable_if<((8) > (0)), void>::type vllm::rms_norm_kernel<int>(int)", "rms_norm"),
        ("void cutlass::device_kernel<mine::gemm_of_mine<int>>(T1)", "gemm_of_mine"),
        ("unbalanced<a<b(c", "unbalanced"),
    ],
)
def test_a_function_loses_all_but_its_name(name: str, short: str) -> None:
    assert short_name(name) == short
