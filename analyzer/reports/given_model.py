"""The model that a user names for a trace, as text: a name, a config.json or its folder."""

from dataclasses import replace

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.reports.user_facts import Given, GivenModel

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
    named = None
    if model == NONE:
        sizes = {"weights": weights, "batch": batch, "context": context}
        for option, value in {**sizes, "tensor-parallel": tensor_parallel}.items():
            if value is not None:
                raise InputError(f"--{option}: says something of a model, and --model is none")
    elif model not in (None, AUTO):
        shape = read_model_config(model)
        named = GivenModel(shape, model_weights(shape, weights), weights, tensor_parallel or 1)
    return replace(
        others,
        model=named,
        batch=batch,
        context=context,
        guess=model != NONE,
        weights_text=weights,
        tensor_parallel=tensor_parallel,
    )
