"""The generated text of sequence 0: brings its ids to the host, and decodes them as they come."""

from collections.abc import Callable

import torch

TAIL_CHARACTERS = 2000
_CONTEXT_TOKENS = 4
_MAX_PARTIAL = 3
_INCOMPLETE = "\ufffd"


class TokenTap:
    """Collects the id tensors that steps return, and copies them to the host together.

    On "cuda" `exchange()` starts an asynchronous copy into pinned memory and returns the ids of the
    previous copy, so it never synchronises. On "cpu" it returns all ids at once.
    """

    def __init__(self, device: str) -> None:
        self._asynchronous = device.startswith("cuda")
        self._ids: list[torch.Tensor] = []
        self._arriving: tuple[torch.Tensor, torch.cuda.Event] | None = None
        self.add = self._ids.append

    def exchange(self) -> list[int]:
        """Ids of sequence 0 that have arrived since the last call, oldest first."""
        if not self._asynchronous:
            return self._fetch()
        if self._arriving is not None and not self._arriving[1].query():  # type: ignore[no-untyped-call]
            return []
        arrived = self._arrived()
        if self._ids:
            column = self._column()
            host = torch.empty(column.shape, dtype=column.dtype, pin_memory=True)
            host.copy_(column, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
            self._arriving = (host, done)
            self._ids.clear()
        return arrived

    def finish(self) -> list[int]:
        """Wait for all ids that were not returned yet; returns them, oldest first."""
        return self._arrived() + self._fetch()

    def clear(self) -> None:
        self._ids.clear()
        self._arriving = None

    def _arrived(self) -> list[int]:
        """Wait for the copy that is on its way, if any."""
        if self._arriving is None:
            return []
        host, done = self._arriving
        self._arriving = None
        done.synchronize()
        ids: list[int] = host.tolist()
        return ids

    def _fetch(self) -> list[int]:
        ids: list[int] = self._column().tolist() if self._ids else []
        self._ids.clear()
        return ids

    def _column(self) -> torch.Tensor:
        return torch.stack(self._ids)[:, 0]


class TextTail:
    """Decodes new ids together with a few old ones, and keeps the last `TAIL_CHARACTERS`.

    A tokenizer may split one UTF-8 character over up to four tokens, one a byte. They decode to
    U+FFFD until the last one arrives, so up to three trailing tokens wait for the next call. A
    character that stays broken is kept as U+FFFD. Without `decode` the text stays empty. `text` is
    the tail, without a character that is still incomplete.
    """

    def __init__(self, decode: Callable[[list[int]], str] | None) -> None:
        self._decode = decode
        self._context: list[int] = []
        self._pending: list[int] = []
        self.text = ""

    def restart(self) -> None:
        """Start again with an empty text."""
        self._context.clear()
        self._pending.clear()
        self.text = ""

    def feed(self, ids: list[int]) -> None:
        """Append `ids` to the text."""
        if self._decode is None or not ids:
            return
        self._pending += ids
        known = len(self._decode(self._context)) if self._context else 0
        count = len(self._pending)
        # As many tokens as end with a whole character; all of them if the character stays broken.
        for whole in (*range(count, max(-1, count - _MAX_PARTIAL - 1), -1), count):
            text = self._decode(self._context + self._pending[:whole]) if whole else ""
            if not text.endswith(_INCOMPLETE):
                break
        if whole:
            self.text = (self.text + text[known:])[-TAIL_CHARACTERS:]
            self._context = (self._context + self._pending[:whole])[-_CONTEXT_TOKENS:]
            del self._pending[:whole]
