"""How many parameters a model has, by the matrices and vectors of its layers."""

from decodescope.analyzer.modelling.matrices import inputs_matrix, layer_weights, norm_size
from decodescope.analyzer.modelling.shape import ModelShape


def parameter_count(shape: ModelShape) -> int:
    """Number of weights, biases and norms included; a table tied to the head counts once.

    Layers for the prediction of further tokens (`num_nextn_predict_layers`) do not count.
    """
    total = (1 if shape.tied else 2) * shape.vocabulary * shape.hidden + norm_size(shape)
    inputs = inputs_matrix(shape)
    total += inputs.rows * (shape.vocabulary + inputs.columns) + shape.layer_input
    kinds = shape.kinds()
    for kind in set(kinds):
        matrices, vectors = layer_weights(shape, kinds.index(kind))
        size = sum(one.copies * one.rows * (one.columns + one.bias) for one in matrices)
        total += kinds.count(kind) * (size + sum(one.size for one in vectors))
    return total
