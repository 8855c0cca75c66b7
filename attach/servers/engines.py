"""The engines and the names of their metrics, as engines.toml has them: the only place that knows
them."""

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec
from msgspec import Struct

Engine = Literal["vllm", "sglang", "trtllm", "llamacpp", "unknown"]
_Names = tuple[str, ...]


class EngineFacts(Struct, frozen=True, forbid_unknown_fields=True):
    """An engine, and the names of its metrics behind `prefix`; of each, the first that the server
    has counts.

    `generated` and `prompt` count tokens as they are computed, `iterations` counts steps, and
    `kv_fill` is from 0 to 1. `throughput` is for engines whose counters only move when a request
    ends.

    `owner` is the `owned_by` of its models in the answer to /v1/models. `metrics_option` starts a
    server with metrics. `by_hand` says how to record a window where no endpoint opens one.
    """

    title: str
    prefix: str
    owner: str = ""
    metrics_option: str = "its metrics"
    by_hand: str = ""
    generated: _Names = ()
    prompt: _Names = ()
    iterations: _Names = ()
    running: _Names = ()
    waiting: _Names = ()
    kv_fill: _Names = ()
    throughput: _Names = ()
    inter_token_latency: _Names = ()

    @property
    def beginnings(self) -> _Names:
        """The beginnings of the lines that hold the named metrics."""
        counted = (self.generated, self.prompt, self.iterations, self.running, self.waiting)
        measured = (self.kv_fill, self.throughput, self.inter_token_latency)
        return tuple(
            f"{self.prefix}{series.partition('{')[0]}"
            for names in (*counted, *measured)
            for series in names
        )


@cache
def engines() -> dict[Engine, EngineFacts]:
    data = files(__package__).joinpath("engines.toml").read_bytes()
    return msgspec.toml.decode(data, type=dict[Engine, EngineFacts])
