"""What makes two measurements hard to compare: different workloads, and incomplete windows."""

from msgspec import UNSET, Struct

from decodescope.analyzer.formatting import sampling_words
from decodescope.analyzer.schema.report import Finding, Report

_FIELDS = (
    "model", "weights", "dtype", "batch", "context", "tokens", "sampling", "device", "device_name"
)  # fmt: skip
_MAX_UNATTRIBUTED_SHARE = 0.01
# Harmless, or reported once for the whole comparison.
_IGNORED_CODES = frozenset(
    {"profiler_overhead", "cpu_capture", "no_steps", "inferred_steps", "coarse_timestamps"}
)


def workload_differences(one: Struct, two: Struct) -> tuple[str, ...]:
    """Each difference between the workloads of two runs or captures, as "batch 1 against 4".

    Speeds are comparable if there is none. Fields that one of them lacks or that are unset are
    ignored.
    """
    pairs = {name: (getattr(one, name, UNSET), getattr(two, name, UNSET)) for name in _FIELDS}
    return tuple(
        f"{name.replace('_', ' ')} {_word(one, name)} against {_word(two, name)}"
        for name, pair in pairs.items()
        if UNSET not in pair and pair[0] != pair[1]
    )


def _word(workload: Struct, name: str) -> str:
    value = getattr(workload, name)
    return sampling_words(value) if name == "sampling" else str(value)


def window_findings(name: str, window: Report) -> list[Finding]:
    """The findings of a window's health, and one if more than 1 % of its ops are in no range, as
    its ranges are then incomplete. Each sentence begins with `name`."""
    findings = [
        Finding(finding.code, f"{name}: {finding.message}")
        for finding in window.health.findings
        if finding.code not in _IGNORED_CODES
    ]
    found = window.attribution
    ops = found.exact + found.partial + found.none if found else 0
    if found and ops and found.none / ops > _MAX_UNATTRIBUTED_SHARE:
        message = (
            f"{name}: {found.none:,} of {ops:,} ops have no range of their own, "
            "so its ranges show only a part of the work"
        )
        findings.append(Finding("unattributed_ops", message))
    return findings
