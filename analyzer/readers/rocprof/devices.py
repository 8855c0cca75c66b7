"""The GPUs of a rocprofv3 document: agents by handle become devices by number."""

from collections.abc import Sequence

from decodescope.analyzer.readers.rocprof.document import GPU_AGENT, Agent

_MAX_DEVICES = 1 << 16


class Devices:
    """Numbers the GPUs as rocprofv3 does, from 0; `names` holds their names.

    An agent that the document does not list counts as one more GPU.
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.names: dict[int, str] = {}
        self._hosts = {agent.id.handle for agent in agents if agent.type != GPU_AGENT}
        self._numbers: dict[int, int] = {}
        self._taken: set[int] = set()
        self._next = 0
        for agent in agents:
            if agent.type == GPU_AGENT:
                number = self._assign(agent.id.handle, agent.logical_node_type_id)
                self.names[number] = agent.product_name or agent.name

    def is_gpu(self, handle: int) -> bool:
        """Whether the agent is no CPU."""
        return handle not in self._hosts

    def number(self, handle: int) -> int:
        """The number of a GPU."""
        known = self._numbers.get(handle)
        return self._assign(handle, None) if known is None else known

    def way(self, source: int, target: int) -> str:
        """From which memory to which, as other formats write it: HtoD, DtoH, DtoD, PtoP."""
        if self.is_gpu(source) and self.is_gpu(target):
            return "DtoD" if source == target else "PtoP"
        return "DtoH" if self.is_gpu(source) else "HtoD"

    def _assign(self, handle: int, given: int | None) -> int:
        """Number a GPU as the document does, else with the first number that is free."""
        if given is None or not 0 <= given < _MAX_DEVICES or given in self._taken:
            while self._next in self._taken:
                self._next += 1
            given = self._next
        self._taken.add(given)
        self._numbers[handle] = given
        return given
