"""Tables of what this machine can run: the models, the variants and the checks of `doctor`.

torch is imported inside the checks, so that they can report that it is not installed.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal, get_args

from rich import box
from rich.table import Table
from rich.text import Text

from decodescope.analyzer.errors import DecodescopeError
from decodescope.analyzer.io.cache_folder import cache_folder
from decodescope.analyzer.machine.provenance import package_version
from decodescope.analyzer.protocol.messages import VariantInfo
from decodescope.variants.machine.environment import (
    INSTALL_HINT,
    RUN_PACKAGES,
    gpu_facts,
    interpreting,
    missing_run_packages,
    why_no_cuda,
)
from decodescope.variants.model.source import TINY, TINY_PARAMETERS, Preset, resolve_model
from decodescope.variants.spec import FUSIONS, KV_FORMATS, NARROW_WEIGHTS, AllReduce

CheckStatus = Literal["ok", "warn", "fail"]

_STATUS_STYLE = {"ok": "green", "warn": "yellow", "fail": "bold red"}
_STATUS_MARK = {"ok": "ok", "warn": "!", "fail": "FAIL"}


@dataclass(frozen=True, slots=True)
class Check:
    """One thing decodescope needs or can use: what was found, and what to do if it is missing.

    "fail": models cannot run. "warn": something works less well, or not at all, without it.
    """

    name: str
    status: CheckStatus
    detail: str
    advice: str | None = None


def doctor_checks() -> tuple[Check, ...]:
    """Check everything that running models needs; opening recorded traces needs none of it."""
    return (
        _check_packages(),
        _check_cuda(),
        _check_triton(),
        _check_optional("nvtx", "without it Nsight Systems shows no ranges: pip install nvtx"),
        _check_profiler(),
        _check_read_peak(),
        _check_tiny(),
    )


def _check_packages() -> Check:
    if missing := missing_run_packages():
        return Check("packages", "fail", f"missing: {', '.join(missing)}", INSTALL_HINT)
    versions = {name: package_version(name) for name in RUN_PACKAGES}
    installed = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    return Check("packages", "ok", installed)


def _check_cuda() -> Check:
    lacking = why_no_cuda()
    if lacking is not None:
        return Check("CUDA", "warn", lacking, "models run on the CPU; GPU variants need CUDA")
    facts = gpu_facts()
    memory_gib = int(facts["gpu_memory_bytes"] or 0) / 1024**3
    detail = f"{facts['gpu']}, {memory_gib:.0f} GiB, CUDA {facts['cuda']}"
    return Check("CUDA", "ok", f"{detail}, driver {facts['driver'] or 'unknown'}")


def _check_optional(name: str, advice: str) -> Check:
    version = package_version(name)
    if version is None:
        return Check(name, "warn", "not installed", advice)
    return Check(name, "ok", f"{name} {version}")


def _check_triton() -> Check:
    check = _check_optional(
        "triton", "without it there is no measured read peak, and no compiled variant"
    )
    if check.status != "ok" or why_no_cuda() is None:
        return check
    if interpreting():
        detail = f"{check.detail}, its interpreter is on: fused kernels run on the CPU"
        return replace(check, detail=detail, advice="for tokens and accuracy, not for speed")
    advice = "TRITON_INTERPRET=1 runs fused kernels on the CPU, to check tokens and accuracy"
    return replace(check, advice=advice)


def _check_profiler() -> Check:
    if "torch" in missing_run_packages():
        return Check("profiler", "fail", "torch is not installed", INSTALL_HINT)
    from torch.profiler import ProfilerActivity, kineto_available, supported_activities

    if not kineto_available():
        advice = "this build of torch has no Kineto; install one from pytorch.org"
        return Check("profiler", "fail", "torch.profiler cannot record", advice)
    activities = supported_activities()  # type: ignore[no-untyped-call]
    if why_no_cuda() is None and ProfilerActivity.CUDA not in activities:
        advice = "kernels cannot be recorded; check that CUPTI comes with this torch"
        return Check("profiler", "fail", "no CUDA activities", advice)
    return Check("profiler", "ok", "torch.profiler with Kineto")


def _check_read_peak() -> Check:
    if why_no_cuda() is not None:
        return Check("read peak", "ok", "measured on a GPU only")
    from decodescope.variants.machine.read_peak import cached_peak, this_gpu, today

    peak = cached_peak(this_gpu(), cache_folder(), today())
    if peak is None:
        return Check("read peak", "ok", "not measured yet; the first run measures it")
    measured = f"{peak.bytes_per_s / 1e12:.2f} TB/s, measured {peak.measured_at}"
    return Check("read peak", "ok", f"{measured} (kept in {cache_folder()})")


def _check_tiny() -> Check:
    try:
        resolve_model(TINY)
    except DecodescopeError as error:
        return Check("tiny", "fail", str(error), "reinstall decodescope")
    return Check("tiny", "ok", "the bundled model is installed")


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
        f"{', '.join(FUSIONS)}; pdl: programmatic dependent launch. Weights of fused variants may "
        f"be stored in {', '.join(narrow)}; with +w8a8, weights and what they multiply are "
        "fp8_e4m3. +head16 leaves lm_head in the run's dtype, +embedding8 stores the embedding "
        "table in 8 bits, as 4 bits do without +embedding16. "
        f"{', '.join(f'+kv_{format}' for format in KV_FORMATS)}: K and V in FP8. "
        f"{', '.join(f'+all_reduce_{name}' for name in get_args(AllReduce))}: how ranks add up."
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
