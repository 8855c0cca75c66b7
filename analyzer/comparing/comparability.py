"""Reasons that make two measurements hard to compare: other workloads, incomplete windows."""

from collections import Counter

from msgspec import UNSET

from decodescope.analyzer.schema.answer import Answer
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
    """Each difference between the workloads of two runs or captures, as "batch 1 against 4". Fields
    that one of them lacks or that are unset are ignored."""
    pairs = {name: (getattr(base, name, UNSET), getattr(other, name, UNSET)) for name in _FIELDS}
    return tuple(
        f"{name.replace('_', ' ')} {_word(base, name)} against {_word(other, name)}"
        for name, pair in pairs.items()
        if UNSET not in pair and pair[0] != pair[1]
    )


def _word(workload: object, name: str) -> str:
    value = getattr(workload, name)
    return sampling_words(value) if name == "sampling" else str(value)


def work_differences(base: Report, other: Report) -> tuple[str, ...]:
    """Each difference between the work of two steps, or between the devices that did it, as "batch
    32 against 1"; of what is unknown on a side, there is none."""
    differences: list[str] = []
    if base.capture is not None and other.capture is not None:
        differences += workload_differences(base.capture, other.capture)
    else:
        names = _model_words(base.answer), _model_words(other.answer)
        if all(names) and _plain_name(names[0]) != _plain_name(names[1]):
            differences.append(f"model {names[0]} against {names[1]}")
        batches = base.answer.batch, other.answer.batch
        if None not in batches and batches[0] != batches[1]:
            differences.append(f"batch {batches[0]:,} against {batches[1]:,}")
        devices = _devices(base), _devices(other)
        if all(devices) and devices[0] != devices[1]:
            differences.append(f"device {devices[0]} against {devices[1]}")
    kinds = base.answer.kind, other.answer.kind
    if kinds[0] != kinds[1] and "unknown" not in kinds:
        differences.insert(0, f"{kinds[0]} steps against {kinds[1]} steps")
    return tuple(differences)


def _model_words(answer: Answer) -> str:
    guessed = " (guessed)" if answer.model_source == "guessed" else ""
    return f"{answer.model}{guessed}" if answer.model else ""


def _plain_name(model: str) -> str:
    """The model without its owner, its weights and how it is known."""
    return model.split("@")[0].removesuffix(" (guessed)").rpartition("/")[2].casefold()


def _devices(report: Report) -> str:
    """Each name once, with how many devices have it; "" if one has none."""
    names = Counter(device.name for device in report.devices)
    if not all(names):
        return ""
    return ", ".join(
        f"{number} of {name}" if number > 1 else name for name, number in names.items()
    )


def kv_findings(base: Report, other: Report) -> list[Finding]:
    """A finding if the KV lengths of the steps differ by over 10 %; those of our own captures do
    where their contexts do."""
    if base.capture is not None and other.capture is not None:
        return []
    base_tokens, other_tokens = _kv_tokens(base), _kv_tokens(other)
    apart = abs(base_tokens - other_tokens) > _SIMILAR_KV * max(base_tokens, other_tokens)
    if not (apart and base_tokens and other_tokens):
        return []
    message = (
        f"the steps of A have {base_tokens:,} KV tokens, those of B {other_tokens:,}: the time of "
        "attention depends on them"
    )
    return [Finding("different_kv", message)]


def _kv_tokens(report: Report) -> int:
    return report.standing_kind.kv_tokens or 0 if report.standing_kind else 0


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
