"""Checkpoints as one rank loads them, without a process group."""

from pathlib import Path
from unittest.mock import patch

from decodescope.variants.model import loading
from decodescope.variants.model.loading import LoadedModel, load_model
from decodescope.variants.model.source import resolve_model
from decodescope.variants.parallel.ranks import ALONE, Ranks


def loaded(folder: Path | str, ranks: Ranks = ALONE, ep: bool = False) -> LoadedModel:
    """The part of a rank. Tokens to check a checkpoint with need all ranks."""
    with patch.object(loading, "require_decoding"):
        return load_model(resolve_model(str(folder)), "cpu", "fp32", ranks=ranks, ep=ep)
