"""What a reader of two windows side by side must know about each of them."""

from decodescope.analyzer.schema.report import Finding, Report

_TELLING_SHARE = 0.01
# Harmless, or said once for the whole comparison.
_LEFT_OUT = frozenset({"profiler_overhead", "cpu_capture", "no_steps"})


def window_findings(name: str, window: Report) -> list[Finding]:
    """What the window's health says, and whether more than 1 % of its ops are in no range, as
    ranges then compare only in part; each sentence with the name before it."""
    findings = [
        Finding(finding.code, f"{name}: {finding.message}")
        for finding in window.health.findings
        if finding.code not in _LEFT_OUT
    ]
    found = window.attribution
    ops = found.exact + found.partial + found.none if found else 0
    if found and ops and found.none / ops > _TELLING_SHARE:
        findings.append(
            Finding(
                "unattributed_ops",
                f"{name}: {found.none:,} of {ops:,} ops have no range of their own, "
                "so its ranges show only a part of the work",
            )
        )
    return findings
