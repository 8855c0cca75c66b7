import pytest
from hypothesis import given
from hypothesis import strategies as st

from decodescope.analyzer.errors import InputError
from decodescope.variants.spec import FUSIONS, WEIGHT_FORMATS, VariantSpec

formats = st.one_of(st.none(), st.sampled_from(WEIGHT_FORMATS))
specs = st.one_of(
    st.builds(VariantSpec, st.just("eager"), st.booleans(), formats),
    st.builds(VariantSpec, st.just("compiled"), st.just(False), formats),
    st.builds(
        VariantSpec,
        st.just("fused"),
        st.booleans(),
        formats,
        st.frozensets(st.sampled_from(FUSIONS)),
    ),
)


@given(specs)
def test_the_string_of_a_spec_parses_to_it(spec: VariantSpec) -> None:
    assert VariantSpec.parse(str(spec)) == spec


@given(specs, st.randoms())
def test_the_order_of_the_options_does_not_matter(spec: VariantSpec, random: object) -> None:
    kernels, *options = str(spec).split("+")
    random.shuffle(options)  # type: ignore[attr-defined]
    assert VariantSpec.parse("+".join([kernels, *options])) == spec


def test_reading_a_long_one() -> None:
    spec = VariantSpec.parse("fused+no_head+graph+fp8_e4m3")
    assert spec.kernels == "fused"
    assert spec.cuda_graph
    assert spec.weight_format == "fp8_e4m3"
    assert spec.fusions == set(FUSIONS) - {"head"}
    assert str(spec) == "fused+graph+fp8_e4m3+no_head"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("fusd", "did you mean fused"),
        ("fused+grph", "did you mean graph"),
        ("fused+fp8_e4m2", "did you mean fp8_e"),
        ("fused+graph+graph", "repeats"),
        ("fused+bf16+int8", "repeats"),
        ("fused+no_head+no_head", "repeats"),
        ("fused+no_hed", "did you mean head"),
        ("eager+no_head", "only fused kernels"),
        ("compiled+graph", "already replays"),
        ("", "unknown"),
        ("fused+", "unknown"),
    ],
)
def test_what_is_wrong_is_said(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        VariantSpec.parse(text)
    assert "\n" not in str(caught.value)


def test_a_spec_validates_itself() -> None:
    with pytest.raises(InputError, match="only fused kernels"):
        VariantSpec("eager", fusions=frozenset({"head"}))
    with pytest.raises(InputError, match="weight format"):
        VariantSpec("eager", weight_format="fp7")  # type: ignore[arg-type]
