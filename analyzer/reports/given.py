"""What a user gives beside a trace: facts that the trace itself does not have."""

from dataclasses import dataclass

from decodescope.analyzer.trace import Trace


@dataclass(frozen=True, slots=True)
class Given:
    """`captures`: profiles of graph captures, which name the ops of graph replays; those of other
    models and batch sizes are not used."""

    captures: tuple[Trace, ...] = ()


NOTHING = Given()
