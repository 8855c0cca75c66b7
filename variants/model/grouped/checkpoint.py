"""Shared by the readers of checkpoints of 4 bits: their tensors, and checks of them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn

import torch

from decodescope.analyzer.errors import ModelError
from decodescope.kernels.host.packing import Packing
from decodescope.variants.model.checkpoint import Shape, StoredTensor
from decodescope.variants.model.grouped.schemes import Layout, PackedScheme

SCALE_TYPES = ("F16", "BF16", "F32")


@dataclass(frozen=True, slots=True)
class PackedCheckpoint:
    """The tensors of `model` by name, the schemes of its config.json, and what reads a tensor."""

    model: str
    tensors: Mapping[str, StoredTensor]
    schemes: tuple[PackedScheme, ...]
    read: Callable[[str], torch.Tensor]

    def holds(self, key: str, codes: str, scale: str) -> bool:
        """Whether these tensors, of which one may be missing, are the matrix `key`."""
        plain = f"{key}.weight" in self.tensors
        return codes in self.tensors or (scale in self.tensors and not plain)

    def require(self, name: str, types: tuple[str, ...], shape: Shape, field: str) -> None:
        """Check the type and shape of a tensor, which follow from `field` of config.json.

        Raises:
            ModelError: it is missing or another; names it and the field.
        """
        stored = self.tensors.get(name)
        if stored is None or stored.dtype not in types or stored.shape != shape:
            found = "missing" if stored is None else f"{stored.dtype} {list(stored.shape)}"
            self.refuse(name, found, f"{' or '.join(types)} {list(shape)} by config.json ({field})")

    def require_whole_groups(self, name: str, columns: int, scheme: PackedScheme) -> None:
        """Raise `ModelError` if the last group of a row is not whole, as it is in this format."""
        if not scheme.has_rows_of(columns):
            expected = f"of whole groups by config.json (group_size {scheme.group})"
            self.refuse(name, f"of {columns} columns", expected)

    def refuse(self, name: str, found: str, expected: str) -> NoReturn:
        raise ModelError(
            f"{self.model}: {name} is {found} in the weights and {expected}; use the files of one "
            "checkpoint"
        )

    def scheme_of(
        self,
        layouts: tuple[Layout, ...],
        codes: str,
        scale: str,
        columns: int,
        axis: int = -1,
        zeros: bool = False,
        order: bool = False,
    ) -> PackedScheme | None:
        """The scheme of these layouts that a matrix has: of several, by the type of its `codes`,
        then the groups along an axis of its `scale`, which are whole, its zero points and an order
        of its columns.

        Raises:
            ModelError: groups of two sizes give as many; names the codes.
        """
        stored = self.tensors.get(codes)
        groups = self.tensors[scale].shape[axis:][:1] if scale in self.tensors else ()
        typed = [each for each in self.schemes if stored and each.codes == stored.dtype]
        possible = [each for each in typed or self.schemes if each.layout in layouts]

        def fit(scheme: PackedScheme) -> tuple[bool, ...]:
            return (
                (scheme.groups(columns),) == groups,
                scheme.has_rows_of(columns),
                scheme.symmetric != zeros,
                bool(scheme.order) == order,
            )

        best = [each for each in possible if fit(each) == max(map(fit, possible))]
        sizes = {min(each.group or columns, columns) for each in best}
        if len(sizes) > 1 and fit(best[0])[0]:
            listed = " and ".join(map(str, sorted(sizes)))
            self.refuse(codes, f"of {groups[0]} groups", f"of groups of {listed} by config.json")
        return best[0] if best else None

    def packing_or_reason(
        self, packing: Packing | None, scale: str, group_of: torch.Tensor | None = None
    ) -> tuple[Packing | None, str]:
        """The packing in which the kernels read a matrix, or None and why it is dequantised."""
        if group_of is not None:
            return None, "its columns are in groups by an order of activations"
        if self.tensors[scale].dtype == "F32":
            return None, "its scales are float32"
        return packing, "" if packing is not None else "no kernel reads such groups"

    def group_of(self, name: str, columns: int, scheme: PackedScheme) -> torch.Tensor | None:
        """The group of each column by the tensor `name`, None if they are in order, as without such
        a tensor.

        Raises:
            ModelError: another tensor than a permutation of the groups, or none where the scheme
                has an order; names it.
        """
        if name not in self.tensors:
            if scheme.order and scheme.groups(columns) > 1:
                expected = f"one group for each column by config.json ({scheme.order})"
                self.refuse(name, "missing", expected)
            return None
        group = scheme.group or columns
        self.require(name, ("I32", "I64"), (columns,), "one group for each column")
        stored = self.read(name).long().cpu()
        ordered = torch.arange(columns) // group
        if torch.equal(stored, ordered) or bool((stored == -1).all()):
            return None
        if not torch.equal(stored.sort().values, ordered):
            raise ModelError(
                f"{self.model}: {name} is no permutation of the groups of {columns} columns by "
                f"config.json (group_size {group}); download or save the checkpoint again"
            )
        return stored
