"""What a step consists of, as far as names, annotations and repetition tell."""

from typing import Literal

from msgspec import Struct

StepKind = Literal["decode", "prefill", "mixed", "unknown"]


class StepKindReport(Struct, frozen=True):
    """The steps of one kind and batch size (requests), null if unknown.

    `kv_tokens` is the sum of the KV lengths of all requests of a step, including the tokens that it
    computes, `query_tokens` that of the
    tokens it computes: each the (lower) median over those of the steps that tell, null if none
    does. `median_ns` is the (lower) median step time, among those with GPU ops if there are any.
    """

    kind: StepKind
    steps: int
    batch: int | None
    kv_tokens: int | None
    query_tokens: int | None
    median_ns: int
