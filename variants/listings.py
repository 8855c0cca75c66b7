"""Tables of the models, the variants and the doctor's checks."""

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.protocol.messages import VariantInfo
from decodescope.variants.doctor import Check
from decodescope.variants.model.source import TINY_PARAMETERS, Preset
from decodescope.variants.spec import FUSIONS, KV_FORMATS, NARROW_WEIGHTS

_STATUS_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_STATUS_MARK = {"ok": "ok", "warn": "!", "fail": "FAIL"}


def models_table(presets: Sequence[Preset]) -> Table:
    """`tiny` and `presets`: shape, parameters and hub id."""
    table = _table("model", "params", "layers", "hidden", "heads/KV", "vocab", "weights")
    table.add_row(
        "tiny", f"{TINY_PARAMETERS / 1e6:.1f} M", "4", "256", "4/2", "4,096", "bundled, trained"
    )
    for preset in presets:
        config = preset.config
        table.add_row(
            preset.name,
            f"{preset.parameters / 1e9:.2f} B",
            str(config["num_hidden_layers"]),
            f"{config['hidden_size']:,}",
            f"{config['num_attention_heads']}/{config['num_key_value_heads']}",
            f"{config['vocab_size']:,}",
            preset.hub_id,
        )
    table.caption = (
        "A preset's name downloads its hub weights; NAME@random has its shape and random weights. "
        "A hub id or a checkpoint folder works too."
    )
    table.caption_justify = "left"
    return table


def variants_table(variants: Sequence[VariantInfo], device: str) -> Table:
    """Each variant; for one that does not run on `device`, the reason."""
    table = _table("variant", "what it is", f"on {device}")
    for info in variants:
        runs = Text(info.unavailable or "yes", style="dim" if info.unavailable else "")
        if info.interpreted:
            runs = Text("interpreted: tokens and accuracy, no speed", style="yellow")
        table.add_row(info.name, info.summary, runs)
    narrow = [format for format in NARROW_WEIGHTS if format != "w8a8"]
    table.caption = (
        "A minus leaves a part out of a fused variant, as in fused+graph-rope-pdl. Fusions: "
        f"{', '.join(FUSIONS)}; pdl: programmatic dependent launch. +prefetch prefetches the O "
        "projection's weights into L2 during attention. Weights of fused variants may be stored in "
        f"{', '.join(narrow)}; with +w8a8, weights and what they multiply are fp8_e4m3. "
        "+head16 leaves lm_head in the run's dtype, +embedding8 stores the embedding table so too. "
        f"{', '.join(f'+kv_{format}' for format in KV_FORMATS)}: K and V in FP8."
    )
    table.caption_justify = "left"
    return table


def checks_table(checks: Sequence[Check]) -> Table:
    """The doctor's checks; one that is not ok says what to do."""
    table = _table("check", "", "found", "what to do")
    for check in checks:
        mark = Text(_STATUS_MARK[check.status], style=_STATUS_STYLE[check.status])
        table.add_row(check.name, mark, check.detail, check.advice or "")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for number, column in enumerate(columns):
        table.add_column(column, no_wrap=number == 0, overflow="fold")
    return table
