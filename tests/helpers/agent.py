"""A client of the MCP server, for tests that are not asynchronous."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import msgspec
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import Client, StdioServerParameters
from mcp.server import Server

from decodescope.cli.mcp.answers import TOKEN_BYTES


@dataclass(frozen=True)
class Reply:
    """The text of an answer, and whether the tool failed."""

    text: str
    failed: bool

    @property
    def tokens(self) -> float:
        return len(self.text.encode()) / TOKEN_BYTES

    @property
    def json(self) -> Any:
        assert not self.failed, self.text
        return msgspec.json.decode(self.text)

    @property
    def error(self) -> str:
        """The line of a failed call."""
        assert self.failed, self.text
        assert len(self.text.splitlines()) == 1
        return self.text


class Agent:
    """Calls tools of one server, each call in turn."""

    def __init__(self, portal: BlockingPortal, client: Client) -> None:
        self.portal, self.client = portal, client

    def call(self, tool: str, **arguments: Any) -> Reply:
        result = self.portal.call(self.client.call_tool, tool, arguments)
        (content,) = result.content
        return Reply(content.text, bool(result.is_error))

    def resource(self, uri: str) -> str:
        (content,) = self.portal.call(self.client.read_resource, uri).contents
        return str(content.text)


@contextmanager
def agent_of(server: Server[Any] | StdioServerParameters) -> Iterator[Agent]:
    """An agent that talks to a server of this process, or to one that is started for it."""
    with (
        start_blocking_portal() as portal,
        portal.wrap_async_context_manager(Client(server)) as client,
    ):
        yield Agent(portal, client)
