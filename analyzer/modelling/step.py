"""The size of one engine step: how many requests, new tokens and positions of the KV cache."""

from dataclasses import dataclass

from decodescope.analyzer.errors import InputError


@dataclass(frozen=True, slots=True)
class StepShape:
    """One step of `batch` requests.

    `kv_tokens` is the sum over the requests of their lengths after the step, the new tokens
    included; `query_tokens` the number of new tokens in all, None for a decode step: one a request.
    `pairs` is the number of (query, key) pairs under the causal mask, if it is known.
    `kv_lengths` are the lengths by themselves, if they are known; otherwise every request has the
    mean length, and the mean number of new tokens.
    """

    batch: int
    kv_tokens: int
    query_tokens: int | None = None
    pairs: int | None = None
    kv_lengths: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.batch < 1:
            raise InputError(f"batch {self.batch}: give 1 or more requests")
        if self.queries < self.batch:
            raise InputError(
                f"{self.queries} new tokens for {self.batch} requests; give one or more for each"
            )
        if self.kv_tokens < self.queries:
            raise InputError(
                f"{self.kv_tokens} KV positions for {self.queries} new tokens; KV positions "
                "include the new tokens"
            )
        if self.kv_lengths and (len(self.kv_lengths), sum(self.kv_lengths)) != (
            self.batch,
            self.kv_tokens,
        ):
            raise InputError("kv_lengths must have one length a request, and add up to kv_tokens")

    @property
    def queries(self) -> int:
        """New tokens of all requests."""
        return self.batch if self.query_tokens is None else self.query_tokens

    @property
    def is_decode(self) -> bool:
        """Whether every request has one new token."""
        return self.queries == self.batch

    def kv_read(self, window: int | None) -> float:
        """Positions that a layer's attention must read: sum of min(length, window + queries - 1)
        over the requests."""
        if window is None:
            return self.kv_tokens
        reach = window + self.queries / self.batch - 1
        if self.kv_lengths:
            return sum(min(length, reach) for length in self.kv_lengths)
        return min(float(self.kv_tokens), self.batch * reach)

    def attended_pairs(self, window: int | None) -> float:
        """(Query, key) pairs under the causal mask, and inside the window of a layer that has one:
        for a request with q queries and k keys, the sum of min(window, p) for p in (k - q, k]."""
        if window is None and self.pairs is not None:
            return self.pairs
        queries = self.queries / self.batch
        lengths = self.kv_lengths or (self.kv_tokens / self.batch,)
        each = sum(_visible(key, window) - _visible(key - queries, window) for key in lengths)
        return each if self.kv_lengths else each * self.batch


def causal_pairs(queries: int, query_squares: int, query_keys: int) -> int:
    """`StepShape.pairs` from sums over requests of q, q^2 and q * k, as vLLM's annotations give.

    A request has q * k - q * (q - 1) / 2 pairs.
    """
    return query_keys - (query_squares - queries) // 2


def _visible(positions: float, window: int | None) -> float:
    """Sum of min(window, p) for p = 1 .. positions."""
    positions = max(positions, 0)
    if window is None or positions <= window:
        return positions * (positions + 1) / 2
    return window * (window + 1) / 2 + (positions - window) * window
