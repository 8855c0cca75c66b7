"""How evenly a mixture's router uses its experts, sampled while it decodes."""

from collections.abc import Callable

import torch

from decodescope.analyzer.schema.report import ExpertsBalance
from decodescope.variants.model.experts import balance_figures


class ExpertsTally:
    """Counts the choices of the steps that are looked at.

    `choices` gives those of the last step, float32 [layers, experts]. On "cuda" a look never
    synchronises: its figures arrive with a later one.
    """

    def __init__(self, choices: Callable[[], torch.Tensor]) -> None:
        self._choices_of_step = choices
        self._choices = torch.zeros_like(choices())
        self._arriving: tuple[torch.Tensor, torch.cuda.Event | None] | None = None
        self._balance: ExpertsBalance | None = None

    def look(self) -> ExpertsBalance | None:
        """Count the choices of the last step; the figures that have arrived, None before any."""
        if self._arriving is not None:
            figures, done = self._arriving
            if done is not None and not done.query():  # type: ignore[no-untyped-call]
                return self._balance
            distinct, busiest = figures.tolist()
            self._balance = ExpertsBalance(self._choices.shape[1], distinct, busiest)
        figures = arriving = self._counted()
        done = None
        if figures.is_cuda:
            arriving = torch.empty(figures.shape, pin_memory=True).copy_(figures, non_blocking=True)
            done = torch.cuda.Event()  # type: ignore[no-untyped-call]
            done.record()
        self._arriving = arriving, done
        return self._balance

    def _counted(self) -> torch.Tensor:
        """The figures of the last step, the busiest expert's share that of all choices so far."""
        choices = self._choices_of_step()
        self._choices += choices
        return balance_figures(choices, self._choices)
