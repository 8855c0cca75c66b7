"""The GPUs of a rocprofv3 document: agents by handle become devices by number."""

from collections.abc import Sequence
from itertools import count

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
        for agent in agents:
            if agent.type == GPU_AGENT:
                number = self._free(agent.logical_node_type_id)
                self._numbers[agent.id.handle] = number
                self.names[number] = agent.product_name or agent.name

    def is_gpu(self, handle: int) -> bool:
        """Whether the agent is no CPU."""
        return handle not in self._hosts

    def number(self, handle: int) -> int:
        """The number of a GPU."""
        following = max(self._numbers.values(), default=-1) + 1
        return self._numbers.setdefault(handle, following)

    def way(self, source: int, target: int) -> str:
        """From which memory to which, as other formats write it: HtoD, DtoH, DtoD, PtoP."""
        if self.is_gpu(source) and self.is_gpu(target):
            return "DtoD" if source == target else "PtoP"
        return "DtoH" if self.is_gpu(source) else "HtoD"

    def _free(self, given: int | None) -> int:
        """The number that the document gives, else the first that is free."""
        if given is not None and 0 <= given < _MAX_DEVICES and given not in self.names:
            return given
        return next(number for number in count() if number not in self.names)
