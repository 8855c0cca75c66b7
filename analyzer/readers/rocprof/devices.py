"""The GPUs of a rocprofv3 document: agents by handle become devices by number."""

from collections.abc import Sequence

from decodescope.analyzer.readers.rocprof.document import GPU_AGENT, Agent


class Devices:
    """Numbers the GPUs as rocprofv3 does, from 0; `names` holds their names.

    An agent that the document does not list counts as one more GPU.
    """

    def __init__(self, agents: Sequence[Agent]) -> None:
        self.names: dict[int, str] = {}
        self._hosts = {agent.id.handle for agent in agents if agent.type != GPU_AGENT}
        self._numbers: dict[int, int] = {}
        for ordinal, agent in enumerate(one for one in agents if one.type == GPU_AGENT):
            given = agent.logical_node_type_id
            number = ordinal if given is None or given in self.names else given
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
