"""Reasons that make two measurements hard to compare: other workloads, incomplete windows."""

from msgspec import UNSET

from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.text.formatting import sampling_words

_FIELDS = (
    "model",
    "weights",
    "dtype",
    "batch",
    "context",
    "tokens",
    "sampling",
    "device",
    "device_name",
)
_MAX_UNATTRIBUTED_SHARE = 0.01
# Lengths of KV caches grow from step to step.
_SIMILAR_KV = 0.1
# Harmless, or reported once for the whole comparison.
_IGNORED_CODES = frozenset(
    {"profiler_overhead", "cpu_capture", "no_steps", "inferred_steps", "coarse_timestamps"}
)


def workload_differences(base: object, other: object) -> tuple[str, ...]:
    """Each difference between the workloads of two runs or captures, as "batch 1 against 4".

    Speeds are comparable if there is none. Fields that one of them lacks or that are unset are
    ignored.
    """
    pairs = {name: (getattr(base, name, UNSET), getattr(other, name, UNSET)) for name in _FIELDS}
    return tuple(
        f"{name.replace('_', ' ')} {_word(base, name)} against {_word(other, name)}"
        for name, pair in pairs.items()
        if UNSET not in pair and pair[0] != pair[1]
    )


def _word(workload: object, name: str) -> str:
    value = getattr(workload, name)
    return sampling_words(value) if name == "sampling" else str(value)


def step_differences(base: Report, other: Report) -> tuple[str, ...]:
    """Each difference between the steps that stand for two traces, as "batch 32 against 1": their
    kind, batch and KV length (over 10 %), as far as both are known."""
    first, second = base.standing_kind, other.standing_kind
    if first is None or second is None:
        return ()
    differences = []
    if first.kind != second.kind and "unknown" not in (first.kind, second.kind):
        differences.append(f"{first.kind} steps against {second.kind} steps")
    if first.batch is not None and second.batch is not None and first.batch != second.batch:
        differences.append(f"batch {first.batch:,} against {second.batch:,}")
    if first.kv_tokens is not None and second.kv_tokens is not None:
        longest = max(first.kv_tokens, second.kv_tokens)
        if abs(first.kv_tokens - second.kv_tokens) > _SIMILAR_KV * longest:
            differences.append(f"{first.kv_tokens:,} KV tokens against {second.kv_tokens:,}")
    return tuple(differences)


def structure_findings(names: tuple[str, str], windows: tuple[Report, Report]) -> list[Finding]:
    """Limits of a comparison by role and by layer: a side without a step that has roles, without
    layers, or with another number of layers."""
    if not all(window.steps for window in windows):
        return []
    sides = tuple(zip(names, windows, strict=True))
    without_ops = [name for name, window in sides if not any(step.gpu_ops for step in window.steps)]
    if without_ops:
        message = f"{_have(without_ops)} no step with GPU ops, so nothing is compared by role"
        return [Finding("no_roles", message)]
    if not all(window.roles for window in windows):
        return []
    if without_layers := [name for name, window in sides if not window.layers]:
        message = (
            f"{_have(without_layers)} no layers that repeat: roles rest on names alone there, and "
            "nothing is compared by layer"
        )
        return [Finding("no_layers", message)]
    base_layers, other_layers = (
        window.structure.layers if window.structure else 0 for window in windows
    )
    if base_layers == other_layers:
        return []
    message = (
        f"{names[0]} has {base_layers} layers, {names[1]} {other_layers}: their means are "
        "compared, and those that one has more are a row of their own"
    )
    return [Finding("different_layers", message)]


def _have(names: list[str]) -> str:
    return f"{names[0]} has" if len(names) == 1 else f"{' and '.join(names)} have"


def window_findings(name: str, window: Report) -> list[Finding]:
    """The findings of a window's health, and one if more than 1 % of its ops are in no range, as
    its ranges are then incomplete. Each sentence begins with `name`."""
    findings = [
        Finding(finding.code, f"{name}: {finding.message}")
        for finding in window.health.findings
        if finding.code not in _IGNORED_CODES
    ]
    attribution = window.attribution
    ops = attribution.exact + attribution.partial + attribution.none if attribution else 0
    if attribution and ops and attribution.none / ops > _MAX_UNATTRIBUTED_SHARE:
        message = (
            f"{name}: {attribution.none:,} of {ops:,} ops have no range of their own, "
            "so its ranges show only a part of the work"
        )
        findings.append(Finding("unattributed_ops", message))
    return findings
