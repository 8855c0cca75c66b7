"""Brings the generated ids of sequence 0 to the host without making the device wait."""

import torch


class TokenTap:
    """Collects the id tensors that steps return and fetches them together, one copy at a time.

    On "cuda" `exchange()` starts an asynchronous copy into pinned memory and returns what the copy
    before it brought, so that it never synchronises; on "cpu" it returns all ids at once.
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
        arrived = []
        if self._arriving is not None:
            host, done = self._arriving
            if not done.query():  # type: ignore[no-untyped-call]
                return []
            arrived = host.tolist()
            self._arriving = None
        if self._ids:
            self._send_for(self._column())
            self._ids.clear()
        return arrived

    def finish(self) -> list[int]:
        """Wait for all ids not returned yet and return them, oldest first."""
        arrived = []
        if self._arriving is not None:
            host, done = self._arriving
            done.synchronize()
            arrived = host.tolist()
            self._arriving = None
        return arrived + self._fetch()

    def clear(self) -> None:
        """Forget what was not fetched yet."""
        self._ids.clear()
        self._arriving = None

    def _fetch(self) -> list[int]:
        ids: list[int] = self._column().tolist() if self._ids else []
        self._ids.clear()
        return ids

    def _column(self) -> torch.Tensor:
        return torch.stack(self._ids)[:, 0]

    def _send_for(self, column: torch.Tensor) -> None:
        host = torch.empty(column.shape, dtype=column.dtype, pin_memory=True)
        host.copy_(column, non_blocking=True)
        done = torch.cuda.Event()  # type: ignore[no-untyped-call]
        done.record()
        self._arriving = (host, done)
