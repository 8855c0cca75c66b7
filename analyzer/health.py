"""Whether the figures of a trace can be trusted, and what a reader of them must know."""

import numpy as np

from decodescope.analyzer.launches import LaunchCalls
from decodescope.analyzer.report import Finding, Health, HealthStatus
from decodescope.analyzer.steps import Steps
from decodescope.analyzer.trace import Trace

_HARMLESS = frozenset({"profiler_overhead", "cpu_capture", "no_steps", "empty_steps"})


def health(trace: Trace, launches: LaunchCalls, steps: Steps) -> Health:
    """Status and findings.

    "no_gpu_activity" without a single op; "degraded" where ops are unlinked or the reader had to
    leave something out; otherwise "ok".
    """
    unlinked = 0 if trace.on_cpu else int(np.count_nonzero(trace.ops.launch < 0))
    findings = [*trace.findings, *_findings(trace, launches, steps, unlinked)]
    status: HealthStatus = "ok"
    if not len(trace.ops):
        status = "no_gpu_activity"
    elif any(finding.code not in _HARMLESS for finding in findings):
        status = "degraded"
    return Health(status=status, unlinked_gpu_ops=unlinked, findings=tuple(findings))


def _findings(trace: Trace, launches: LaunchCalls, steps: Steps, unlinked: int) -> list[Finding]:
    findings = []
    count = len(trace.ops)
    if not count:
        findings.append(
            Finding(
                "no_gpu_activity", "no kernel, copy or fill in this trace: nothing ran on a GPU"
            )
        )
        return findings
    if trace.on_cpu:
        findings.append(Finding("cpu_capture", "device: cpu; leaf operators stand for GPU ops"))
    if unlinked:
        findings.append(
            Finding(
                "unlinked_gpu_ops",
                f"{unlinked} of {count} GPU ops have no launch call in the trace; "
                "they count as busy, the gaps before them as unlinked",
            )
        )
    early = trace.ops.start_ns[launches.first_op] < trace.calls.start_ns[launches.call]
    if early.any():
        findings.append(
            Finding(
                "starts_before_call",
                f"{int(early.sum())} ops start before their launch call: the clocks of host and "
                "device disagree",
            )
        )
    if not len(steps):
        findings.append(Finding("no_steps", "no step markers, so no figures per step"))
    elif not steps.gpu_ops.any():
        findings.append(Finding("empty_steps", "no GPU op was launched inside a step marker"))
    return findings
