"""A folder for sockets, whose path is short and which no other test sees."""

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def socket_folder() -> Iterator[str]:
    """The path of a socket has 107 bytes at most, and that of a test's own folder may be longer."""
    with tempfile.TemporaryDirectory(prefix="ds-", dir="/tmp") as folder:
        yield folder
