import random
import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.kernels.host.packing import PACKED_FORMATS
from decodescope.variants.spec import (
    FUSIONS,
    KV_FORMATS,
    LOADED_FORMATS,
    NARROW_WEIGHTS,
    PARTS,
    WEIGHT_FORMATS,
    AllReduce,
    VariantSpec,
    kernels_of,
)

loaded_formats = st.one_of(st.none(), st.sampled_from(LOADED_FORMATS))
formats = st.one_of(st.none(), st.sampled_from(WEIGHT_FORMATS))
byte_formats = st.sampled_from([word for word in NARROW_WEIGHTS if word not in PACKED_FORMATS])
kv_formats = st.one_of(st.none(), st.sampled_from(KV_FORMATS))
parts_but_attention = st.frozensets(st.sampled_from(PARTS)).map(lambda parts: parts - {"attention"})
specs = st.one_of(
    st.builds(VariantSpec, st.just("eager"), st.booleans(), weight_format=loaded_formats),
    st.builds(VariantSpec, st.just("compiled"), weight_format=loaded_formats),
    st.builds(
        VariantSpec,
        st.just("fused"),
        st.booleans(),
        weight_format=formats,
        without=st.frozensets(st.sampled_from(PARTS)),
    ),
    st.builds(
        VariantSpec,
        st.just("fused"),
        st.booleans(),
        weight_format=formats,
        kv_format=kv_formats,
        all_reduce=st.one_of(st.none(), st.sampled_from(get_args(AllReduce))),
        without=parts_but_attention,
    ),
    st.builds(
        VariantSpec,
        st.just("fused"),
        st.booleans(),
        weight_format=st.sampled_from(tuple(NARROW_WEIGHTS)),
        head16=st.booleans(),
        kv_format=kv_formats,
    ),
    st.builds(
        VariantSpec,
        st.just("fused"),
        weight_format=byte_formats,
        embedding_bits=st.just(8),
    ),
    st.builds(
        VariantSpec,
        st.just("fused"),
        weight_format=st.sampled_from(tuple(PACKED_FORMATS)),
        embedding_bits=st.just(16),
    ),
)


def test_every_format_is_loaded_or_narrow() -> None:
    assert (*LOADED_FORMATS, *NARROW_WEIGHTS) == WEIGHT_FORMATS


@given(specs)
def test_the_string_of_a_spec_parses_to_it(spec: VariantSpec) -> None:
    assert VariantSpec.parse(str(spec)) == spec


@given(specs, st.randoms())
def test_the_order_of_the_options_does_not_matter(
    spec: VariantSpec, shuffled: random.Random
) -> None:
    text = str(spec)
    kernels = kernels_of(text)
    options = re.findall(r"[+-][^+-]+", text[len(kernels) :])
    shuffled.shuffle(options)
    assert VariantSpec.parse(kernels + "".join(options)) == spec


def test_reading_a_long_one() -> None:
    spec = VariantSpec.parse("fused-pdl+graph-rope+fp8_e4m3+head16")
    assert spec.kernels == "fused"
    assert spec.cuda_graph
    assert spec.head16
    assert spec.weight_format == "fp8_e4m3"
    assert spec.without == {"rope", "pdl"}
    assert {fusion for fusion in FUSIONS if spec.uses(fusion)} == set(FUSIONS) - {"rope"}
    assert str(spec) == "fused+graph+fp8_e4m3+head16-rope-pdl"


def test_reading_narrow_formats() -> None:
    spec = VariantSpec.parse("fused+kv_fp8_e5m2+embedding8+graph+int8+head16")
    assert (spec.weight_format, spec.kv_format, spec.narrow) == ("int8", "fp8_e5m2", True)
    assert spec.head16
    assert spec.narrow_embedding
    assert str(spec) == "fused+graph+int8+head16+embedding8+kv_fp8_e5m2"
    assert not VariantSpec.parse("fused+fp16").narrow


def test_three_projections_cannot_rotate() -> None:
    spec = VariantSpec.parse("fused-qkv")
    assert not spec.uses("rope")
    assert spec.uses("norm")
    assert str(spec) == "fused-qkv"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fusd", "did you mean fused"),
        ("fusd-rope", "kernels 'fusd' is unknown"),
        ("fused+grph", "did you mean graph"),
        ("fused+fp8_e4m2", "did you mean fp8_e"),
        ("fused+graph+graph", "repeats"),
        ("fused+head16+graph+head16", "'\\+head16' repeats"),
        ("fused+kv_fp8_e5m2-attention", "PyTorch's attention reads no FP8"),
        ("fused+bf16+int8", "repeats"),
        ("fused+kv_fp8_e4m3+kv_fp8_e5m2", "'\\+kv_fp8_e5m2' repeats"),
        ("fused+head16", "goes with a narrow weight format"),
        ("fused+bf16+embedding8", "goes with a narrow weight format"),
        ("fused+embedding16", "goes with a narrow weight format"),
        ("fused+mxfp4+embedding8", "has 8 bits without that word; leave it out"),
        ("fused+w8a8+embedding16", "has 16 bits without that word; leave it out"),
        ("fused+int4+embedding8+embedding16", "'\\+embedding16' repeats"),
        ("eager+int8", "only fused kernels read FP8, INT8 and 4 bits"),
        ("eager+all_reduce_torch", "only fused kernels can add up"),
        ("fused+all_reduce_one", "did you mean all_reduce_none"),
        ("fused+all_reduce_none+all_reduce_torch", "repeats"),
        ("compiled+kv_fp8_e4m3", "only fused kernels read FP8, INT8 and 4 bits"),
        ("fused-head-head", "'-head' repeats"),
        ("fused-hed", "did you mean head"),
        ("fused+head", "part 'head' is unknown"),
        ("fused-graph", "part to leave out 'graph' is unknown"),
        ("eager-head", "only fused kernels"),
        ("compiled+graph", "already replays"),
        ("", "unknown"),
        ("fused+", "unknown"),
        ("fused-", "unknown"),
        ("fused--head", "unknown"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        VariantSpec.parse(text)
    assert "\n" not in str(caught.value)
