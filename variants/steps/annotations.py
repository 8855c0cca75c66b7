"""Ranges around the parts of a transformers model, opened by hooks that can be removed.

Names: `embedding` and `rotary`; `layer.N`, in it `input_norm`, `attention`, `post_attention_norm`,
`pre_mlp_norm`, `mlp`, `router`, `experts` (beside an MLP), `post_mlp_norm`; after the layers
`final_norm` and `lm_head`. `decode_step`, `model` and `sampling` are opened by the code that runs
them.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch import nn
from torch.utils.hooks import RemovableHandle

from decodescope.analyzer.capture.profiler_session import annotate

_LAYER_PARTS = {
    "input_layernorm": "input_norm",
    "ln_1": "input_norm",
    "self_attn": "attention",
    "linear_attn": "attention",
    "attn": "attention",
    "attention": "attention",
    "post_attention_layernorm": "post_attention_norm",
    "ln_2": "post_attention_norm",
    "post_self_attn_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "pre_mlp_norm",
    "pre_feedforward_layernorm_2": "pre_mlp_norm",
    "post_feedforward_layernorm": "post_mlp_norm",
    "post_feedforward_layernorm_1": "post_mlp_norm",
    "post_feedforward_layernorm_2": "post_mlp_norm",
    "post_mlp_layernorm": "post_mlp_norm",
    "mlp": "mlp",
    "feed_forward": "mlp",
    "block_sparse_moe": "mlp",
    "router": "router",
    "experts": "experts",
}
_MODEL_PARTS = {
    "embed_tokens": "embedding",
    "wte": "embedding",
    "wpe": "embedding",
    "rotary_emb": "rotary",
    "norm": "final_norm",
    "ln_f": "final_norm",
    "final_layernorm": "final_norm",
    "final_layer_norm": "final_norm",
}


def ranged_modules(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """The modules that get a range, with its path below the model: `layer.0/mlp`.

    Parts that the model lacks are left out. The layers are the decoder's `ModuleList` of
    `num_hidden_layers` entries; parts are recognised by the attribute names of Llama-like (and
    GPT-2-like) models.
    """
    decoder: Any = getattr(model, "base_model", model)
    count = decoder.config.get_text_config(decoder=True).num_hidden_layers
    for child in decoder.children():
        if isinstance(child, nn.ModuleList) and len(child) == count:
            for number, layer in enumerate(child):
                yield f"layer.{number}", layer
                for attribute, part in layer.named_children():
                    if attribute in _LAYER_PARTS:
                        yield f"layer.{number}/{_LAYER_PARTS[attribute]}", part
            break
    for attribute, child in decoder.named_children():
        if attribute in _MODEL_PARTS:
            yield _MODEL_PARTS[attribute], child
    head: Any = getattr(model, "lm_head", None)
    if isinstance(head, nn.Module):
        yield "lm_head", head


def range_paths(model: nn.Module) -> dict[str, str]:
    """The path of each module that gets a range, by the module's name inside `model`."""
    names = {id(module): name for name, module in model.named_modules()}
    return {names[id(module)]: path for path, module in ranged_modules(model)}


class LayerRanges:
    """Ranges around a model's parts, off until `set(True)`. While off, a step pays nothing for
    hooks, and `open` costs one shared context manager that does nothing. `enabled`: they are on."""

    def __init__(self, model: nn.Module | None) -> None:
        self._model = model
        self._handles: list[RemovableHandle] = []
        self._open: list[annotate] = []
        self.enabled = False

    def set(self, enabled: bool) -> None:
        """Install the hooks, or remove them all; a repeated call changes nothing."""
        if enabled == self.enabled:
            return
        self.enabled = enabled
        if enabled and self._model is not None:
            for path, module in ranged_modules(self._model):
                self._hook(path.rpartition("/")[2], module)
        while self._handles and not enabled:
            self._handles.pop().remove()

    def open(self, name: str) -> AbstractContextManager[None]:
        return annotate(name) if self.enabled else _NOTHING

    def _hook(self, name: str, module: nn.Module) -> None:
        def enter(module: nn.Module, args: object) -> None:
            opened = annotate(name)
            opened.__enter__()
            self._open.append(opened)

        def leave(module: nn.Module, args: object, output: object) -> None:
            self._open.pop().__exit__(None, None, None)

        self._handles.append(module.register_forward_pre_hook(enter))
        self._handles.append(module.register_forward_hook(leave, always_call=True))


_NOTHING = nullcontext()
