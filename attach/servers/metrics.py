"""The metrics of a server at one moment, read from its Prometheus text."""

import math
import re
from collections.abc import Callable, Iterable, Mapping

from msgspec import Struct

from decodescope.analyzer.errors import InputError, MissingRequirement
from decodescope.attach.servers.engines import Engine, engines

Labels = Mapping[str, str]
Samples = Mapping[str, list[tuple[Labels, float]]]

# A metric that each rank of one replica reports counts once.
_RANK_LABELS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank", "pid"})
_MAX_LINE = 16 << 10
# No server counts so far; sums and rates of such values are finite.
_MOST = 1e15
_PROMETHEUS_LINE = re.compile(
    rb"^(?:# (?:HELP|TYPE) \S+ |[a-zA-Z_:][\w:]*(?:\{[^\n]*\})? [-+]?[0-9NI])", re.MULTILINE
)


class Histogram(Struct, frozen=True):
    """Counts of observations up to each of `upper_bounds_s`, which ascend and end with infinity."""

    upper_bounds_s: tuple[float, ...]
    counts: tuple[float, ...]


class ServerMetrics(Struct, frozen=True):
    """The metrics of a server at `time_s` of a monotonic clock; None if the server lacks one.

    Tokens are totals since the server started, over all its data-parallel replicas; `iterations`
    are the steps of the replica with the most. `kv_fill` is the mean of the replicas, from 0 to 1.
    `generated_per_s` is the server's own figure.

    A group has only `servers`, each with its `name`. `problem` is the reason why a server does not
    answer; its metrics are then the last known ones.
    """

    time_s: float
    generated_tokens: float | None = None
    prompt_tokens: float | None = None
    iterations: float | None = None
    running: float | None = None
    waiting: float | None = None
    kv_fill: float | None = None
    generated_per_s: float | None = None
    inter_token_latency: Histogram | None = None
    name: str = ""
    problem: str = ""
    servers: tuple["ServerMetrics", ...] = ()


def is_prometheus(text: bytes) -> bool:
    """Whether a line of `text` is one of Prometheus text."""
    return _PROMETHEUS_LINE.search(text) is not None


def engine_of(text: bytes) -> Engine | None:
    """The engine whose prefix begins a name of a metric; None if no known engine's does."""
    for engine, facts in engines().items():
        if engine != "unknown" and re.search(rb"^" + facts.prefix.encode(), text, re.MULTILINE):
            return engine
    return None


def read_metrics(text: bytes, engine: Engine, time_s: float, url: str) -> ServerMetrics:
    """The metrics in Prometheus text from `url`.

    Raises:
        InputError: no Prometheus text.
        MissingRequirement: `prometheus_client` is not installed.
    """
    names = engines()[engine]
    samples = _samples(text, engine, url)

    def figure(series: Iterable[str], join: Callable[[list[float]], float]) -> float | None:
        return next((join(found) for each in series if (found := _values(samples, each))), None)

    fill = figure(names.kv_fill, lambda values: sum(values) / len(values))
    return ServerMetrics(
        time_s,
        generated_tokens=figure(names.generated, sum),
        prompt_tokens=figure(names.prompt, sum),
        iterations=figure(names.iterations, max),
        running=figure(names.running, sum),
        waiting=figure(names.waiting, sum),
        kv_fill=fill if fill is not None and fill <= 1 else None,
        generated_per_s=figure(names.throughput, sum),
        inter_token_latency=next(
            filter(None, (_histogram(samples, name) for name in names.inter_token_latency)), None
        ),
    )


def _samples(text: bytes, engine: Engine, url: str) -> Samples:
    """The samples of the metrics that the engine's figures are of, by their name without its
    prefix; of an unknown engine, those of all metrics."""
    try:
        from prometheus_client.parser import text_string_to_metric_families
    except ImportError as error:
        raise MissingRequirement(
            "attach: the metrics of a server need prometheus-client, which is not installed; "
            "install it from a checkout with: pip install '.[attach]'"
        ) from error
    no_metrics = InputError(f"{url}: the metrics are no Prometheus text; check the URL")
    if text.strip() and not is_prometheus(text):
        raise no_metrics
    prefix = engines()[engine].prefix
    lines = text.decode(errors="replace").splitlines()
    if engine != "unknown":
        # Most lines of a server are others, and the parser takes most of the time of a look.
        lines = [line for line in lines if line.startswith(engines()[engine].beginnings)]
    # A line takes the parser a time that grows with the square of its length.
    if any(len(line) > _MAX_LINE for line in lines):
        raise no_metrics
    found: dict[str, list[tuple[Labels, float]]] = {}
    try:
        for family in text_string_to_metric_families("\n".join(lines) + "\n"):
            for sample in family.samples:
                name = sample.name.rpartition(prefix)[2]
                if 0 <= sample.value < _MOST:
                    found.setdefault(name, []).append((sample.labels, sample.value))
    except (ValueError, IndexError, KeyError, RecursionError):
        raise no_metrics from None
    return found


def _values(samples: Samples, series: str) -> list[float]:
    """The values of a series, "name" or "name{label=value}", one a replica."""
    name, _, chosen = series.rstrip("}").partition("{")
    label, _, of_label = chosen.partition("=")
    return _of_replicas(
        (labels, value)
        for labels, value in samples.get(name, ())
        if not label or labels.get(label) == of_label
    )


def _of_replicas(found: Iterable[tuple[Labels, float]]) -> list[float]:
    """The largest value of each label set, the labels of ranks left out. With priorities, the
    sample with an empty priority is the total."""
    replicas: dict[tuple[tuple[str, str], ...], float] = {}
    for labels, value in found:
        if labels.get("priority"):
            continue
        key = tuple(sorted(pair for pair in labels.items() if pair[0] not in _RANK_LABELS))
        replicas[key] = max(value, replicas.get(key, 0.0))
    return list(replicas.values())


def _histogram(samples: Samples, name: str) -> Histogram | None:
    bounds: dict[float, list[tuple[Labels, float]]] = {}
    for labels, count in samples.get(f"{name}_bucket", ()):
        try:
            bound = float(labels["le"])
        except (KeyError, ValueError):
            continue
        if not (0 <= bound < _MOST or bound == math.inf):  # no time
            continue
        bounds.setdefault(bound, []).append((labels, count))
    if len(bounds) < 2 or math.inf not in bounds:
        return None
    ascending = sorted(bounds)
    return Histogram(
        tuple(ascending), tuple(sum(_of_replicas(bounds[bound])) for bound in ascending)
    )
