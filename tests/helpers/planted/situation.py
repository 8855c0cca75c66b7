"""A situation: the plans of one trace, or of one a rank, and what is known of its answer."""

from dataclasses import dataclass

from decodescope.analyzer.schema.answer import Bound
from tests.helpers.planted.decode_traces import Plan, file_of
from tests.helpers.planted.truth import Truth, truth_of, truth_of_windows


@dataclass(frozen=True)
class Situation:
    """One trace file, or one a rank: the plans of each, and what is known of the answer.

    `has_roles`: the names decide the role of every kernel. `late_frame` is the Python frame during
    which the device waits most. `limit_ns` is that of the weights and the KV cache of `model`.
    `is_exact`: the step time is known to the ns, else to 1 %.
    """

    files: tuple[tuple[Plan, ...], ...]
    bound: Bound | None = None
    has_roles: bool = True
    late_frame: str | None = None
    model: str | None = None
    limit_ns: int | None = None
    has_steps: bool = True
    is_exact: bool = True

    @property
    def traces(self) -> tuple[bytes, ...]:
        return tuple(file_of(plans) for plans in self.files)

    @property
    def truths(self) -> tuple[Truth, ...]:
        """The truth of each file."""
        known = truth_of if self.has_steps else truth_of_windows
        return tuple(known(plans) for plans in self.files)
