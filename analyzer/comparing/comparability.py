"""Reasons that make two measurements hard to compare: other workloads, incomplete windows."""

from collections import Counter
from collections.abc import Sequence
from statistics import median_low

from msgspec import UNSET

from decodescope.analyzer.comparing.step_interval import StepTimes, outlier
from decodescope.analyzer.schema.answer import Answer
from decodescope.analyzer.schema.report import Finding, Report
from decodescope.analyzer.text.formatting import ratio_text, sampling_words

Conditions = dict[str, str]

# The fields of a workload by the names that messages have for them.
_FIELDS = {
    "model": "model",
    "weights": "weights",
    "dtype": "dtype",
    "batch": "batch",
    "context": "context",
    "tokens": "tokens",
    "sampling": "sampling",
    "tp": "tp",
    "device_name": "device",
}
_LAYERS = "layers"
_MAX_UNATTRIBUTED_SHARE = 0.01
# Lengths of KV caches grow from step to step.
_SIMILAR_KV = 0.1
# Harmless, or reported once for the whole comparison.
_IGNORED_CODES = frozenset(
    {"profiler_overhead", "cpu_capture", "no_steps", "inferred_steps", "coarse_timestamps"}
)


def run_conditions(workload: object) -> Conditions:
    """The workload of a run or a capture, and its device; fields that it lacks are left out."""
    known = {name: getattr(workload, name, UNSET) for name in _FIELDS}
    return {
        _FIELDS[name]: sampling_words(value) if name == "sampling" else str(value)
        for name, value in known.items()
        if value is not UNSET
    }


def trace_conditions(report: Report) -> Conditions:
    """The work of a trace's main steps, and the devices that did it; what is unknown is left
    out."""
    answer, structure = report.answer, report.structure
    exact = structure if structure is not None and structure.confidence == "exact" else None
    known = {
        "kind": "" if answer.kind == "unknown" else answer.kind,
        "model": _model_words(answer),
        _LAYERS: "" if exact is None else str(exact.layers),
        "batch": "" if answer.batch is None else str(answer.batch),
        "device": _devices(report),
    }
    conditions = {name: text for name, text in known.items() if text}
    return conditions if report.capture is None else conditions | run_conditions(report.capture)


def differences(base: Conditions, other: Conditions) -> dict[str, str]:
    """Each difference by its name, as "batch 32 against 1"; of what is unknown on a side, there is
    none. Numbers of layers differ only where a side does not know its model."""
    words = {}
    both = base.keys() & other.keys()
    for name in both - {_LAYERS} if "model" in both else both:
        texts = base[name], other[name]
        compared = map(_plain_name, texts) if name == "model" else texts
        if len(set(compared)) > 1:
            words[name] = f"{name} {texts[0]} against {texts[1]}"
    if "kind" in words:
        words["kind"] = f"{base['kind']} steps against {other['kind']} steps"
    return {name: words[name] for name in ("kind", *_FIELDS.values(), _LAYERS) if name in words}


def workload_differences(base: object, other: object) -> tuple[str, ...]:
    """The differences of two runs, as `differences`."""
    return tuple(differences(run_conditions(base), run_conditions(other)).values())


def work_differences(base: Report, other: Report) -> tuple[str, ...]:
    """The differences of two traces, as `differences`, and whether one has no op to time."""
    of_work = tuple(differences(trace_conditions(base), trace_conditions(other)).values())
    alike = bool(base.devices) == bool(other.devices)
    return of_work if alike else (*of_work, "step times of a GPU against those of the host alone")


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


def outlier_findings(name: str, paths: Sequence[str], traces: StepTimes) -> list[Finding]:
    """A finding if the interval leaves one of the traces out; its sentence begins with `name`."""
    if (left_out := outlier(traces)) is None:
        return []
    times_ns = [median_low(step_times_ns) for step_times_ns in traces]
    ratio = times_ns[left_out] / max(median_low(times_ns), 1)
    message = (
        f"{name}: a step of {paths[left_out]} takes {ratio_text(ratio)} the time of the other "
        "traces of its side; the interval is without it"
    )
    return [Finding("outlying_trace", message)]


def kv_findings(base: Report, other: Report) -> list[Finding]:
    """A finding if the KV lengths of the steps differ by over 10 %; those of our own captures do
    where their contexts do."""
    if base.capture is not None and other.capture is not None:
        return []
    return kv_differences("A", kv_tokens(base), "B", kv_tokens(other))


def kv_differences(base: str, base_tokens: int, other: str, other_tokens: int) -> list[Finding]:
    """A finding if the KV tokens of two sides differ by over 10 %; 0 is unknown."""
    apart = abs(base_tokens - other_tokens) > _SIMILAR_KV * max(base_tokens, other_tokens)
    if not (apart and base_tokens and other_tokens):
        return []
    message = (
        f"the steps of {base} have {base_tokens:,} KV tokens, those of {other} {other_tokens:,}: "
        "the time of attention depends on them"
    )
    return [Finding("different_kv", message)]


def kv_tokens(report: Report) -> int:
    """The KV tokens of a step of the main kind, 0 if unknown."""
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
