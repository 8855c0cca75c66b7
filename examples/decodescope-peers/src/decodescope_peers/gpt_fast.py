"""gpt-fast's Llama on weights that transformers loaded, decoded as its `generate.py` does.

Its `model.py` and `quantize.py` come from a checkout that the user puts on PYTHONPATH; nothing of
them is here.
"""

import warnings
from collections.abc import Callable, Mapping
from importlib import import_module
from inspect import signature
from typing import Any

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from decodescope.analyzer.errors import MissingRequirement, ModelError
from decodescope.variants.model.loading import LoadedModel
from decodescope.variants.model.workload import DecodeWorkload
from decodescope.variants.steps.compiled_step import compile_and_record
from decodescope.variants.steps.decode_step import DecodeStep

Decode = Callable[[torch.Tensor, torch.Tensor, BlockMask], tuple[torch.Tensor, torch.Tensor]]

_GROUP, _INNER_TILES = 128, 8
# Columns that are no multiple of a group gpt-fast pads to a multiple of so many.
_PADDED_COLUMNS = 1024
_SCALING = ("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings")


def build_gpt_fast(
    loaded: LoadedModel, workload: DecodeWorkload, int4: bool = False
) -> "GptFastStep":
    """The compiled step, with compilation and graph recording done; with `int4` on weights as
    `in_int4`.

    gpt-fast's settings of inductor hold for the rest of the process.

    Raises:
        MissingRequirement: a checkout from before gpt-fast's attention took a block mask.
        ModelError: as `converted`.
    """
    from torch._inductor import config as inductor_settings

    module = checked_module(import_module("model"))
    inductor_settings.coordinate_descent_tuning = True
    torch.compiler.reset()
    quantize = import_module("quantize") if int4 else None
    step = GptFastStep(loaded, workload, module, _reduce_overhead, quantize)
    compile_and_record(step, workload)
    return step


def checked_module(module: Any) -> Any:
    """gpt-fast's `model.py`, whose `Transformer.forward` takes a mask, ids and positions.

    Raises:
        MissingRequirement: an older one, without the mask.
    """
    if "mask" not in signature(module.Transformer.forward).parameters:
        raise MissingRequirement(
            f"variant gpt-fast: {module.__file__} is older than gpt-fast's use of FlexAttention; "
            "update the checkout"
        )
    return module


def _reduce_overhead(decode: Decode) -> Decode:
    compiled = torch.compile(decode, mode="reduce-overhead", fullgraph=True)

    def replay(
        ids: torch.Tensor, position: torch.Tensor, mask: BlockMask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        # Marks the ids and logits of the last step as no longer needed.
        torch.compiler.cudagraph_mark_step_begin()  # type: ignore[no-untyped-call]
        return compiled(ids, position, mask)

    return replay


class GptFastStep(DecodeStep):
    """A `DecodeStep` on the Transformer of `module` (gpt-fast's `model.py`), which has its own KV
    cache, with the weights of `in_int4` if `quantize` is gpt-fast's `quantize.py`. The decode
    function, with the greedy choice inside, may be compiled; the prefill is not.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        workload: DecodeWorkload,
        module: Any,
        compile_decode: Callable[[Decode], Decode],
        quantize: Any = None,
    ) -> None:
        super().__init__(loaded, workload)
        device = loaded.model.device
        self._transformer = converted(loaded, module, workload.cache_length)
        if quantize is not None:
            whole = _matrix_bytes(self._transformer)
            self._transformer = in_int4(self._transformer, quantize)
            self.weight_bytes_read += _matrix_bytes(self._transformer) - whole
        with device:
            self._transformer.setup_caches(workload.batch, workload.cache_length)
        length = self._transformer.max_seq_length
        self._mask = create_block_mask(_causal, 1, 1, length, length, device=str(device))
        self._at = torch.zeros(1, dtype=torch.int32, device=device)
        self._decode = compile_decode(self._decode_one)

    def _prefill(self, ids: torch.Tensor) -> torch.Tensor:
        self._rewind(self._workload.context)
        length, device = self._transformer.max_seq_length, ids.device
        positions = torch.arange(ids.shape[1], device=device)
        mask = create_block_mask(_causal, 1, 1, ids.shape[1], length, device=str(device))
        with warnings.catch_warnings():
            # As gpt-fast's own prefill by default.
            warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
            logits = self._transformer(mask, ids, positions)
        return self._choose(logits[:, -1], ids.shape[1] - 1)

    @torch.no_grad()
    def _advance(self, ids: torch.Tensor, forced: bool) -> tuple[torch.Tensor, torch.Tensor]:
        with self._ranges.open("model"):
            following, logits = self._decode(ids[:, None], self._at, self._mask)
            self._at += 1
        if self._workload.sampling is not None:
            following = self._choose(logits, self.position)
        # The graph's next replay overwrites its outputs.
        return following.clone(), logits

    def _rewind(self, position: int) -> None:
        self._at.fill_(position)

    def _decode_one(
        self, ids: torch.Tensor, position: torch.Tensor, mask: BlockMask
    ) -> tuple[torch.Tensor, torch.Tensor]:
        row = mask[:, :, position // mask.BLOCK_SIZE[0]]
        row.mask_mod = mask.mask_mod
        row.seq_lengths = (1, self._transformer.max_seq_length)
        logits = self._transformer(row, ids, position)[:, -1]
        return logits.argmax(-1), logits


def converted(loaded: LoadedModel, module: Any, positions: int) -> Any:
    """The Llama as a Transformer of `module`: the same tensors, except Q, K and V.

    Those become one matrix, and the rows of Q and K are reordered within each head: transformers
    rotates row i with row i + d/2, gpt-fast row 2i with row 2i + 1.

    Raises:
        ModelError: gpt-fast has no such model.
    """
    model, config = loaded.model, loaded.model.config
    if reason := _unsupported(config):
        raise ModelError(f"variant gpt-fast: {loaded.name} {reason}; choose another variant")
    rope = config.rope_parameters
    arguments = module.ModelArgs(
        block_size=positions,
        vocab_size=config.vocab_size,
        n_layer=config.num_hidden_layers,
        n_head=config.num_attention_heads,
        dim=config.hidden_size,
        intermediate_size=config.intermediate_size,
        n_local_heads=config.num_key_value_heads,
        rope_base=rope["rope_theta"],
        norm_eps=config.rms_norm_eps,
        rope_scaling=_scaling(rope),
    )
    with torch.device("meta"):
        transformer = module.Transformer(arguments)
    state = {
        "tok_embeddings.weight": model.model.embed_tokens.weight,
        "norm.weight": model.model.norm.weight,
        "output.weight": model.lm_head.weight,
    }
    for number, layer in enumerate(model.model.layers):
        state |= {f"layers.{number}.{name}": one for name, one in _layer(layer, config).items()}
    transformer.load_state_dict(state, assign=True)
    return transformer.eval().requires_grad_(False)


def in_int4(transformer: Any, quantize: Any) -> Any:
    """`transformer` with the INT4 layers of gpt-fast's `quantize.py`, in groups of 128 columns, on
    weights that it rounds. They are packed here: since PyTorch 2.5 the operator takes two codes a
    byte, where gpt-fast passes one an int32. The head is among them, as in gpt-fast.

    Raises:
        ModelError: a layer whose outputs are no multiple of 8; names it.
    """
    state = transformer.state_dict()
    for name, linear in transformer.named_modules():
        if isinstance(linear, torch.nn.Linear):
            if linear.out_features % 8:
                raise ModelError(
                    f"variant gpt-fast-int4: layer {name} has {linear.out_features} outputs, and "
                    "PyTorch packs INT4 weights of a multiple of 8; choose another variant"
                )
            columns = linear.in_features
            extra = -columns % _PADDED_COLUMNS if columns % _GROUP else 0
            weight = torch.nn.functional.pad(linear.weight, (0, extra)).bfloat16()
            codes, scales = quantize.group_quantize_tensor(weight, groupsize=_GROUP)
            state |= {f"{name}.weight": _packed(codes), f"{name}.scales_and_zeros": scales}
    layers = quantize.WeightOnlyInt4QuantHandler(transformer, _GROUP, _INNER_TILES)
    quantized = layers.convert_for_runtime()
    quantized.load_state_dict(state, assign=True)
    return quantized


def _packed(codes: torch.Tensor) -> torch.Tensor:
    pairs = (codes[:, ::2] << 4 | codes[:, 1::2]).to(torch.uint8)
    packed: torch.Tensor = torch.ops.aten._convert_weight_to_int4pack(pairs, _INNER_TILES)
    return packed


def _matrix_bytes(transformer: Any) -> int:
    """Bytes of all that a step reads entirely: no rows of the embedding, no cache."""
    state = transformer.state_dict()
    return sum(state[name].nbytes for name in state if not name.startswith("tok_embeddings."))


def _unsupported(config: Any) -> str | None:
    if config.hidden_size != config.num_attention_heads * config.head_dim:
        return "has heads that together are not as wide as its hidden state"
    if config.attention_bias or config.mlp_bias:
        return "has biases"
    if config.rope_parameters["rope_type"] not in ("default", "llama3"):
        return f"rotates by {config.rope_parameters['rope_type']}"
    return None


def _scaling(rope: Mapping[str, Any]) -> dict[str, float] | None:
    return {name: rope[name] for name in _SCALING} if rope["rope_type"] == "llama3" else None


def _layer(layer: Any, config: Any) -> dict[str, torch.Tensor]:
    attention, mlp = layer.self_attn, layer.mlp
    q = _interleaved(attention.q_proj.weight, config.num_attention_heads)
    k = _interleaved(attention.k_proj.weight, config.num_key_value_heads)
    return {
        "attention.wqkv.weight": torch.cat((q, k, attention.v_proj.weight)),
        "attention.wo.weight": attention.o_proj.weight,
        "feed_forward.w1.weight": mlp.gate_proj.weight,
        "feed_forward.w2.weight": mlp.down_proj.weight,
        "feed_forward.w3.weight": mlp.up_proj.weight,
        "attention_norm.weight": layer.input_layernorm.weight,
        "ffn_norm.weight": layer.post_attention_layernorm.weight,
    }


def _interleaved(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows 0, d/2, 1, d/2 + 1, ... of each head."""
    rows = weight.detach().reshape(heads, 2, -1, weight.shape[1])
    return rows.transpose(1, 2).reshape(weight.shape)


def _causal(
    batch: torch.Tensor, head: torch.Tensor, query: torch.Tensor, key: torch.Tensor
) -> torch.Tensor:
    return query >= key
