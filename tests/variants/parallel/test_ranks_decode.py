"""Steps of a split model in two and four processes, against the whole model in one."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import fx

from decodescope.analyzer.schema.report import SamplingSettings
from decodescope.variants.model.loading import LoadedModel, load_model, loaded_model
from decodescope.variants.model.quantized_weights import (
    Quantization,
    QuantizedMatrix,
    scaled,
    weight_tensors,
)
from decodescope.variants.model.quantizing import quantize_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.parallel.cuts import split_of
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.shard import shard_model
from decodescope.variants.parallel.vocabulary import Vocabulary
from decodescope.variants.steps.compiled_step import StaticStep
from decodescope.variants.steps.eager_step import EagerStep
from tests.helpers.families import build, prompt_ids
from tests.helpers.rank_processes import on_ranks
from tests.helpers.split_families import CASES, GEMMA4_MIXTURE, RANKS, shape_of

WORKLOAD = DecodeWorkload(2, 9, 4, "fp32")
# ||logits - those of one rank|| / ||those of one rank||, in fp32.
LOGIT_ERROR = 1e-5


def built(name: str, **changes: Any) -> LoadedModel:
    torch.manual_seed(0)
    return loaded_model(build(name, **shape_of(name) | changes), None, "random", name)


def decoded(step: Any, ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The tokens of a prompt and two steps, and the logits of a forced one."""
    tokens = [step.prefill(ids), step.step(), step.step()]
    return torch.stack([each.clone() for each in tokens]), step.forced_step(ids[:, 0])


def compared(ranks: Ranks, cases: list[tuple[str, bool, dict[str, Any]]]) -> list[str]:
    """The cases whose tokens or logits are not those of one rank."""
    wrong = []
    for name, ep, changes in cases:
        ids = prompt_ids(name, WORKLOAD.batch, WORKLOAD.context)
        whole = built(name, **changes)
        tokens, logits = decoded(EagerStep(whole, WORKLOAD), ids)
        shard_model(whole.model, ranks, ep)
        got_tokens, got = decoded(EagerStep(whole, WORKLOAD), ids)
        error = float((got - logits).norm() / logits.norm())
        if not torch.equal(tokens, got_tokens) or not error < LOGIT_ERROR:
            wrong.append(f"{name}, ep {ep}: {error:.1e}, {tokens.tolist()} {got_tokens.tolist()}")
    return wrong


def test_every_family_decodes_as_one_rank_does(tmp_path: Path) -> None:
    cases = [(name, ep, {}) for name, ep in CASES]
    cases += [("gemma4", ep, GEMMA4_MIXTURE) for ep in (False, True)]
    for way in ("batched_mm", "grouped_mm"):
        cases.append(("qwen3-moe", True, {"experts_implementation": way, "hidden_size": 96}))
    assert on_ranks(2, tmp_path, compared, cases) == [[]] * 2


def test_ranks_beyond_the_heads_of_k_and_v_hold_the_same(tmp_path: Path) -> None:
    names = (
        "llama-tied",
        "llama-biased",
        "phi3",
        "gemma4",
        "gemma4-inputs",
        "mixtral",
        "gpt-oss",
        "olmo2",
        "olmo3",
    )
    cases: list[tuple[str, bool, dict[str, Any]]] = [
        (each, each == "mixtral", {}) for each in names
    ]
    # Its one head of K is normed by itself.
    cases.append(("olmo2", False, {"num_key_value_heads": 1}))
    assert on_ranks(4, tmp_path, compared, cases) == [[]] * 4


def tokens_of_tiny(ranks: Ranks, sampling: SamplingSettings | None) -> tuple[torch.Tensor, int]:
    """The tokens that this rank gives, and the bytes of its weights' memory."""
    workload = DecodeWorkload(2, 12, 8, "fp32", sampling)
    loaded = load_model(resolve_model("tiny"), "cpu", "fp32", workload=workload, ranks=ranks)
    assert loaded.ranks == ranks
    step = EagerStep(loaded, workload)
    prompt = torch.arange(24).reshape(2, 12)
    tokens = [step.prefill(prompt), *(step.step() for _ in range(6))]
    return torch.stack(tokens), held_bytes(loaded.model)


def held_bytes(model: torch.nn.Module) -> int:
    """Bytes of the memory that the weights have, each once."""
    memory = {
        storage.data_ptr(): storage.nbytes()
        for storage in (tensor.untyped_storage() for tensor in weight_tensors(model))
    }
    return sum(memory.values())


@pytest.mark.parametrize(("size", "sampling"), [(2, SamplingSettings(1.3, 40, 0.9, 7)), (4, None)])
def test_tiny_gives_the_tokens_of_one_rank(
    size: int, sampling: SamplingSettings | None, tmp_path: Path
) -> None:
    tokens, whole_bytes = tokens_of_tiny(Ranks(), sampling)
    model = load_model(resolve_model("tiny"), "cpu", "fp32").model
    # The head reads the table.
    assert model.lm_head.weight is model.model.embed_tokens.weight
    named = {name: weight.nbytes for name, weight in model.named_parameters()}
    on_every = sum(held for name, held in named.items() if "norm" in name or "embed" in name)
    kv = sum(held for name, held in named.items() if "k_proj" in name or "v_proj" in name)
    kv_parts = min(size, model.config.num_key_value_heads)
    for got, held in on_ranks(size, tmp_path, tokens_of_tiny, sampling):
        assert torch.equal(got, tokens)
        assert held == (whole_bytes - on_every - kv) // size + kv // kv_parts + on_every


def quantized_apart(ranks: Ranks, cases: list[tuple[str, bool, Quantization]]) -> list[str]:
    """The matrices whose weights are not those of the whole model's."""
    wrong = []
    for name, ep, quantization in cases:
        # Whole groups of 32 columns for each rank.
        whole, part = (built(name, intermediate_size=128).model for _ in range(2))
        quantize_model(name, whole, quantization)
        shard_model(part, ranks, ep)
        quantize_model(name, part, quantization)
        split, parts = split_of(part), dict(part.named_modules())
        for key, matrix in whole.named_modules():
            if isinstance(matrix, QuantizedMatrix):
                weight = f"{key}.weight" if f"{key}.weight" in split.cuts else key
                cut = split.part(weight)
                dense = weights_of(matrix) if cut is None else cut(weights_of(matrix))
                if not torch.equal(dense, weights_of(parts[key])):
                    wrong.append(f"{name} {quantization.format}: {key}")
    return wrong


def weights_of(matrix: QuantizedMatrix) -> torch.Tensor:
    return scaled(matrix.data, matrix.scale, torch.float32, matrix.packing)


def test_a_shard_is_quantized_as_a_part_of_the_whole(tmp_path: Path) -> None:
    cases = [("llama-biased", False, Quantization("nvfp4", head=False))]
    cases += [("llama-biased", False, Quantization(name)) for name in ("mxfp4", "int4_g32")]
    cases.append(("llama-tied", False, Quantization("int4_g32", embedding=True)))
    for ep in (False, True):
        cases.append(("qwen2-moe", ep, Quantization("fp8_e4m3")))
        cases.append(("llama-tied", False, Quantization("int8", embedding=not ep)))
    assert on_ranks(2, tmp_path, quantized_apart, cases) == [[]] * 2


def all_captured(ranks: Ranks, cases: list[tuple[str, bool]]) -> list[tuple[bool, int, int]]:
    return [captured(ranks, *case) for case in cases]


def captured(ranks: Ranks, name: str, ep: bool) -> tuple[bool, int, int]:
    """Whether a compiled step gives the tokens of one rank, its graphs, and the sums in them."""
    torch._dynamo.reset()
    graphs: list[fx.GraphModule] = []

    def count(graph: fx.GraphModule, inputs: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    whole = built(name, num_hidden_layers=2)
    ids = prompt_ids(name, WORKLOAD.batch, WORKLOAD.context)
    tokens, _ = decoded(EagerStep(whole, WORKLOAD), ids)
    shard_model(whole.model, ranks, ep)
    step = StaticStep(
        whole,
        WORKLOAD,
        lambda forward: torch.compile(forward, backend=count, fullgraph=True, dynamic=False),
    )
    got, _ = decoded(step, ids)
    targets = [str(node.target) for graph in graphs for node in graph.graph.nodes]
    sums = sum("all_reduce" in target for target in targets)
    return torch.equal(tokens, got), len(graphs), sums


def test_sums_over_ranks_are_captured_without_a_break(tmp_path: Path) -> None:
    # After the attention and the MLP of each of two layers, a dense one and one with experts; with
    # OLMo 3 also in the norms of Q and K.
    cases = [("qwen2-moe", True), ("olmo3", False)]
    assert on_ranks(2, tmp_path, all_captured, cases) == [[(True, 1, 4), (True, 1, 8)]] * 2


def chosen(ranks: Ranks) -> list[bool]:
    """Whether ranks choose, and put together, what one does with all logits."""
    generator = torch.Generator().manual_seed(3)
    right = []
    for size in (10, 101, 40):
        logits = torch.randint(-3, 3, (5, size), generator=generator).float()
        logits[3] = -torch.inf
        logits[4, size - 2] = torch.nan
        vocabulary = Vocabulary(ranks, size)
        share = vocabulary.share
        part = logits[:, ranks.rank * share : (ranks.rank + 1) * share]
        for dtype in (torch.float32, torch.bfloat16):
            likeliest, whole = logits.to(dtype).argmax(-1), vocabulary.whole(part.to(dtype))
            right.append(torch.equal(vocabulary.likeliest(part.to(dtype)), likeliest))
            right.append(torch.equal(whole.nan_to_num(), logits.to(dtype).nan_to_num()))
    return right


@pytest.mark.parametrize("size", RANKS)
def test_ranks_choose_the_first_of_the_largest_logits(size: int, tmp_path: Path) -> None:
    assert on_ranks(size, tmp_path, chosen) == [[True] * 12] * size
