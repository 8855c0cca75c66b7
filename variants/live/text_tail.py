"""The tail of a text that grows token by token, decoded incrementally."""

from collections.abc import Callable

TAIL_CHARACTERS = 2000
_CONTEXT_TOKENS = 4
_MAX_PARTIAL = 3
_INCOMPLETE = "\ufffd"


class TextTail:
    """Decodes new ids in the light of a few old ones and keeps the last `TAIL_CHARACTERS`.

    A tokenizer may split one UTF-8 character over several tokens (at most four, one a byte), which
    decode to U+FFFD until the last is there: up to three trailing tokens wait for the next call. A
    character that stays broken is kept as U+FFFD. `decode` None gives no text.
    """

    def __init__(self, decode: Callable[[list[int]], str] | None) -> None:
        self._decode = decode
        self._context: list[int] = []
        self._pending: list[int] = []
        self._tail = ""

    @property
    def text(self) -> str:
        """The tail, without a character that is not yet whole."""
        return self._tail

    def restart(self) -> None:
        """Begin an empty text."""
        self._context.clear()
        self._pending.clear()
        self._tail = ""

    def feed(self, ids: list[int]) -> None:
        """Append `ids` to the text."""
        if self._decode is None or not ids:
            return
        self._pending += ids
        known = len(self._decode(self._context)) if self._context else 0
        whole = len(self._pending)
        text = self._decode(self._context + self._pending)
        if text.endswith(_INCOMPLETE):
            whole, text = self._whole_part(text)
        if not whole:
            return
        self._tail = (self._tail + text[known:])[-TAIL_CHARACTERS:]
        self._context = (self._context + self._pending[:whole])[-_CONTEXT_TOKENS:]
        del self._pending[:whole]

    def _whole_part(self, text: str) -> tuple[int, str]:
        """How many pending tokens end on a whole character, and the text with them."""
        assert self._decode is not None
        for waiting in range(1, _MAX_PARTIAL + 1):
            whole = len(self._pending) - waiting
            if whole < 0:
                break
            shorter = self._decode(self._context + self._pending[:whole]) if whole else ""
            if not shorter.endswith(_INCOMPLETE):
                return whole, shorter
        return len(self._pending), text
