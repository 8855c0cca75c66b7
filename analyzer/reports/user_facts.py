"""Facts that a user gives beside a trace, because the trace itself does not have them."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.names.rules import NameRules
from decodescope.analyzer.roofline.peaks import DatasheetPeak
from decodescope.analyzer.trace import Trace

if TYPE_CHECKING:
    from decodescope.analyzer.modelling.shape import ModelShape
    from decodescope.analyzer.modelling.weights import Weights


@dataclass(frozen=True, slots=True)
class GivenModel:
    """The model that a trace is of, the formats of its weights (`weights_text` as the user wrote
    it, None for those of its config), and over how many devices each matrix is divided. `source`
    says how it was chosen, and `evidence` what a guess rests on."""

    shape: "ModelShape"
    weights: "Weights"
    weights_text: str | None = None
    tensor_parallel: int = 1
    source: Literal["capture", "model", "guess"] = "model"
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Given:
    """`captures`: profiles of graph captures, which name the ops of graph replays; those of other
    models and batch sizes are not used. `model`: what the steps compute; without it, and with
    `guess`, the bundled model that alone fits the trace, its matrices in the format `weights_text`
    and divided over `tensor_parallel` devices, if these are given. `batch` requests a step and
    `context` KV positions a request count where the trace does not say them. `peak` replaces that
    of the device, `rules` the bundled ones.
    """

    captures: tuple[Trace, ...] = ()
    model: GivenModel | None = None
    batch: int | None = None
    context: int | None = None
    peak: DatasheetPeak | None = None
    rules: NameRules | None = None
    guess: bool = True
    weights_text: str | None = None
    tensor_parallel: int | None = None


NOTHING = Given()
AUTO, NONE = "auto", "none"


def given_model(
    others: Given,
    model: str | None,
    weights: str | None,
    batch: int | None,
    context: int | None,
    tensor_parallel: int | None,
) -> Given:
    """The facts with this model, the format of its weights and its sizes, beside
    `others`. None leaves each to the trace; the model "auto", or None, is guessed, "none" is not.

    Raises:
        InputError: no such model or format, or sizes without a model.
    """
    from decodescope.analyzer.modelling.config import read_model_config
    from decodescope.analyzer.modelling.weights import check_weights, model_weights

    named = None
    if model == NONE:
        sizes = {"weights": weights, "batch": batch, "context": context}
        for option, value in {**sizes, "tensor-parallel": tensor_parallel}.items():
            if value is not None:
                raise InputError(f"--{option}: says something of a model, and --model is none")
    elif model not in (None, AUTO):
        shape = read_model_config(model)
        named = GivenModel(shape, model_weights(shape, weights), weights, tensor_parallel or 1)
    elif weights is not None:
        check_weights(weights)
    return replace(
        others,
        model=named,
        batch=batch,
        context=context,
        guess=model != NONE,
        weights_text=weights,
        tensor_parallel=tensor_parallel,
    )
