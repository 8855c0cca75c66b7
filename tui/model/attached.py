"""A target that the app is attached to, as its link reports it."""

from dataclasses import dataclass

from decodescope.analyzer.protocol.attach_messages import ServerSample, Target

NO_TARGET = Target("", "", "")


@dataclass(frozen=True, slots=True)
class Attached:
    """The `target`, its latest `sample` (of monotonic second `answered_at`), the `problem` why it
    has not answered since, and the `stage` of the window that is being taken; "" without one."""

    target: Target = NO_TARGET
    sample: ServerSample | None = None
    answered_at: float = 0.0
    problem: str = ""
    stage: str = ""

    @property
    def is_known(self) -> bool:
        """Whether the first figures are there, or it is known that there are none."""
        if self.sample is None or self.sample.figures is None:
            return self.sample is not None or bool(self.problem)
        return self.sample.figures.elapsed_s is not None or bool(self.problem)

    @property
    def offer(self) -> str:
        if self.stage:
            return f"the first window: {self.stage}"
        if not self.target.name:
            return "attaching"
        if not self.target.length:
            return self.target.cost
        return f"t takes a window of {self.target.length}: {self.target.cost}"

    def silence(self, now: float) -> str:
        return f"no answer for {max(now - self.answered_at, 0):.0f} s" if self.problem else ""
