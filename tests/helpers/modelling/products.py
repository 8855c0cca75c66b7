"""Products as a trace with shapes has them."""

from decodescope.analyzer.modelling.trace_facts import Product


def product(
    tokens: int, rows: int, columns: int, element_bytes: int = 2, count: int = 1
) -> Product:
    """`tokens` inputs of `columns` elements times a matrix; 8-bit elements give 16-bit outputs."""
    inputs = tokens * columns + rows * columns
    outputs = tokens * rows * max(element_bytes, 2)
    return Product(inputs * element_bytes + outputs, 2 * tokens * rows * columns, count)
