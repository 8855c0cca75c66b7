import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.timing.step_annotations import (
    MOST,
    UNKNOWN,
    StepAnnotation,
    common,
    is_step_name,
    parse_annotation,
    step_kind,
    supplemented,
)

_SUMS = "(sq0sk0sqsq0sqsk0)"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (
            f"execute_32_context_0{_SUMS}_generation_32(sq32sk55086sqsq32sqsk55086)",
            StepAnnotation("decode", 32, 32, 55_086, "vllm", 55_086),
        ),
        (
            "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)"
            "_generation_3(sq3sk6144sqsq3sqsk6144)",
            StepAnnotation("mixed", 5, 6_147, 13_288, "vllm", 12_542_976),
        ),
        (
            "execute_context_2(14721)_generation_0(0)",
            StepAnnotation("prefill", 2, 14_721, None, "vllm"),
        ),
        (
            "execute_context_1(888_788544)_generation_0(0)",
            StepAnnotation("prefill", 1, 888, None, "vllm"),
        ),
        (
            "execute_context_1(888_788544)_generation_2(2)",
            StepAnnotation("mixed", 3, 890, None, "vllm"),
        ),
        (
            "execute_context_0(0_0)_generation_32(32_55086)",
            StepAnnotation("decode", 32, 32, None, "vllm"),
        ),
        # A context request of one token is still one: a prompt's last chunk.
        (
            "execute_context_1(1)_generation_0(0)",
            StepAnnotation("prefill", 1, 1, None, "vllm"),
        ),
        (
            "execute_context_0(0)_generation_0(0)",
            StepAnnotation("unknown", 0, 0, None, "vllm"),
        ),
        ("execute_new_1_cached_3", StepAnnotation("mixed", 4, None, None, "vllm")),
        ("step[DECODE bs=32]", StepAnnotation("decode", 32, 32, None, "sglang")),
        (
            "step[EXTEND bs=15 toks=15360]",
            StepAnnotation("prefill", 15, 15_360, None, "sglang"),
        ),
        ("step[ extend bs=4 toks=512 ]", StepAnnotation("prefill", 4, 512, None, "sglang")),
        (
            "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]",
            StepAnnotation("decode", 64, 128, 131_072, "sglang"),
        ),
        (
            "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=12 g_sqsq=1]",
            StepAnnotation("mixed", 2, 6, 20, "sglang"),
        ),
        ("step[MIXED bs=8 toks=100]", StepAnnotation("mixed", 8, 100, None, "sglang")),
        (
            "step[TARGET_VERIFY bs=23]",
            StepAnnotation("verify", 23, None, None, "sglang"),
        ),
        ("step[IDLE bs=0]", StepAnnotation("unknown", 0, None, None, "sglang")),
        (
            "step[DRAFT_EXTEND_V2 bs=3]",
            StepAnnotation("draft", 3, None, None, "sglang"),
        ),
        (
            "prefill[bs=6 tok=17408 ctx=[4096, 4096, 4096]...+3 sk=20000]",
            StepAnnotation("prefill", 6, 17_408, 20_000, "atom"),
        ),
        (
            "decode[bs=117/128 tok=117 d=117]",
            StepAnnotation("decode", 117, 117, None, "atom"),
        ),
        (
            "decode[bs=128 tok=384 p=2 d=126 sqsq=132612 sqsk=1114112 sk=258048 tbo=1]",
            StepAnnotation("mixed", 128, 384, 258_048, "atom"),
        ),
        (
            "[Executor] _forward_step 17: 1 ctx reqs, 512 ctx tokens, 3 gen reqs",
            StepAnnotation("mixed", 4, None, None, "tensorrt-llm"),
        ),
        (
            "[Executor] _forward_step: 0 ctx reqs, 8 gen reqs",
            StepAnnotation("decode", 8, None, None, "tensorrt-llm"),
        ),
        ("decode_step_3", StepAnnotation("decode")),
        ("prefill", StepAnnotation("prefill")),
        ("step 7", UNKNOWN),
        ("ProfilerStep#3", UNKNOWN),
    ],
)
def test_what_names_of_engines_say(name: str, expected: StepAnnotation) -> None:
    assert parse_annotation(name) == expected
    assert is_step_name(name) or name == "prefill"


@pytest.mark.parametrize(
    "name",
    [
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55",
        "execute_context_-1(5)_generation_3(8)",
        f"execute_context_1({MOST})_generation_1(1)",
        f"execute_context_0(0)_generation_{'9' * 30}(1)",
        "execute_context_1(٣)_generation_1(1)",
        "step[DECODE bs=-32]",
        "step[DECODE bs=1 bs=2]",
        "step[DECODE]",
        "step[DECODE bs=3.5]",
        "decode[bs=1 tok=3 p=2]",
        "decode_step_extra",
        "",
    ],
)
def test_malformed_names_say_nothing(name: str) -> None:
    assert parse_annotation(name) == UNKNOWN


@given(
    st.one_of(
        st.text(max_size=80),
        st.from_regex(r"(execute_|step\[|decode\[bs=|\[Executor\] _forward_step)[\w\[\]()= .:-]*"),
    )
)
def test_any_name_is_read_without_an_error(name: str) -> None:
    said = parse_annotation(name)
    for number in (said.batch, said.query_tokens, said.kv_tokens):
        assert number is None or 0 <= number <= MOST


def test_an_inner_annotation_supplies_what_the_outer_one_lacks() -> None:
    outer = parse_annotation("execute_context_0(0)_generation_32(32)")
    inner = parse_annotation("step[DECODE bs=31 g_sk=99]")
    assert supplemented(outer, inner) == StepAnnotation("decode", 32, 32, 99, "vllm")
    assert supplemented(UNKNOWN, inner) == inner


def test_several_annotations_say_what_is_common_to_them() -> None:
    names = ["step[DECODE bs=2]", "step[DECODE bs=3]"]
    said = common([parse_annotation(name) for name in names])
    assert said == StepAnnotation("decode", engine="sglang")
    assert common([]) == UNKNOWN


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk55086sqsq32sqsk55086)",
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk*sqsq32sqsk*)",
        ),
        ("step[MIXED bs=2 c_sq=5 c_sk=8]", "step[MIXED bs=2 c_sq=5 c_sk=*]"),
        ("execute_context_0(0)_generation_4(4)", "execute_context_0(0)_generation_4(4)"),
        ("decode_step_7", "decode_step"),
        ("task12", "task12"),
    ],
)
def test_steps_that_differ_in_kv_lengths_alone_are_of_one_name(name: str, kind: str) -> None:
    assert step_kind(name) == kind
