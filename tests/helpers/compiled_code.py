"""Code that torch.compile generated for Llama 3.2 1B on an H200 (torch 2.11), cut to its kernel
calls, with the Dynamo nodes it was generated from; a profile of it is beside it."""

import gzip
import json
from pathlib import Path

from decodescope.variants.steps.inductor_origins import SourceNode, range_of

DATA = Path(__file__).resolve().parent.parent / "data"
PROFILE = DATA / "h200_compiled_ungraphed.json.gz"
LAYERS = 16

_RECORDED = json.loads(gzip.decompress((DATA / "h200_compiled_code.json.gz").read_bytes()))
WRAPPER: str = _RECORDED["wrapper"]

_PARTS = {
    "input_layernorm": "input_norm",
    "self_attn": "attention",
    "post_attention_layernorm": "post_attention_norm",
    "mlp": "mlp",
}
PATHS = {
    "model.embed_tokens": "embedding",
    "model.rotary_emb": "rotary",
    "model.norm": "final_norm",
    "lm_head": "lm_head",
    **{f"model.layers.{n}": f"layer.{n}" for n in range(LAYERS)},
    **{
        f"model.layers.{n}.{module}": f"layer.{n}/{part}"
        for n in range(LAYERS)
        for module, part in _PARTS.items()
    },
}
NODES = {
    name: SourceNode(
        range_of(node["modules"], PATHS),
        node["target"] in ("linear", "matmul", "scaled_dot_product_attention"),
    )
    for name, node in _RECORDED["nodes"].items()
}

SDPA = "aten::_scaled_dot_product_cudnn_attention"
MM = "aten::mm"


def expected_sites() -> list[tuple[str, str]]:
    """Each kernel call of the code, read off it by hand: what it is and the range it belongs to."""
    sites = [
        ("red", "embedding+input_norm"),
        (MM, "layer.0/attention"),
        ("poi", "rotary"),
        (MM, "rotary"),
    ]
    for layer in (f"layer.{n}" for n in range(LAYERS)):
        if layer != "layer.0":
            sites += [("red", f"{layer}/input_norm"), (MM, f"{layer}/attention")]
        in_attention = (MM, "poi", MM, "poi", "poi", "poi", "poi", "poi", SDPA, MM)
        sites += [(what, f"{layer}/attention") for what in in_attention]
        sites.append(("red", f"{layer}/post_attention_norm"))
        sites += [(what, f"{layer}/mlp") for what in (MM, MM, "poi", MM)]
    sites += [("red", "final_norm"), (MM, "lm_head")]
    return sites + [("poi", f"layer.{n}/attention") for n in range(LAYERS)]
