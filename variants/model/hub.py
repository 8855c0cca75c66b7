"""Finds the configuration and the weights of a hub model, in the local cache or on the hub."""

from contextlib import suppress
from pathlib import Path

from huggingface_hub import constants, get_session, hf_hub_download
from huggingface_hub.errors import (
    EntryNotFoundError,
    GatedRepoError,
    HFValidationError,
    LocalEntryNotFoundError,
    RepositoryNotFoundError,
)

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.variants.model.checkpoint import INDEX, WEIGHTS, shard_names

_CONNECT_TIMEOUT_S = 5.0


def find_config(hub_id: str) -> tuple[Path, bool]:
    """The local config.json of `hub_id`, and whether only the local cache can be read.

    Nothing else is fetched. One request checks first whether the hub answers, because without a
    network its client retries every file for about 20 s.

    Raises:
        InputError: not a valid hub id.
        MissingRequirement: unknown or gated model, or no network and not cached.
        ModelError: a repository without config.json.
    """
    cached_only = not _hub_answers()
    try:
        return _download(hub_id, "config.json", cached_only), cached_only
    except LocalEntryNotFoundError as error:
        raise _unreachable(f"{hub_id} is") from error
    except EntryNotFoundError as error:
        raise ModelError(
            f"{hub_id}: has no config.json, so it is not a model checkpoint"
        ) from error


def fetch_weights(hub_id: str, cached_only: bool) -> Path:
    """Fetch the safetensors weights of `hub_id`, no other files; returns the folder that has them.

    Raises:
        MissingRequirement: as `find_config`.
        ModelError: a repository without safetensors weights, or as `shard_names`.
    """
    with suppress(EntryNotFoundError):
        return _download(hub_id, WEIGHTS, cached_only).parent
    try:
        index = _download(hub_id, INDEX, cached_only)
        for name in shard_names(index):
            _download(hub_id, name, cached_only)
    except LocalEntryNotFoundError as error:
        raise _unreachable(f"the weights of {hub_id} are") from error
    except EntryNotFoundError as error:
        raise ModelError(
            f"{hub_id}: has no whole safetensors weights ({WEIGHTS} or {INDEX} and its files); "
            "other formats are never loaded, because they can run code"
        ) from error
    return index.parent


def _download(hub_id: str, file: str, cached_only: bool) -> Path:
    """One file of the repository, in the local cache; `EntryNotFoundError` if either lacks it."""
    try:
        return Path(hf_hub_download(hub_id, file, local_files_only=cached_only))
    except EntryNotFoundError:
        raise
    except HFValidationError as error:
        raise InputError(f"{hub_id!r} is not a valid hub id") from error
    except GatedRepoError as error:
        raise MissingRequirement(
            f"model not found: {hub_id} is gated; accept its licence on huggingface.co and log in "
            "with `hf auth login`, or use a preset's random weights"
        ) from error
    except RepositoryNotFoundError as error:
        raise MissingRequirement(
            f"model not found: the hub has no public model {hub_id} (see `decodescope models`)"
        ) from error
    except OSError as error:
        raise _unreachable(f"{hub_id} is") from error


def _hub_answers() -> bool:
    try:
        get_session().head(constants.ENDPOINT, timeout=_CONNECT_TIMEOUT_S)
    except Exception:  # the HTTP client and its error types differ between releases
        return False
    return True


def _unreachable(missing: str) -> MissingRequirement:
    return MissingRequirement(
        f"model not found: {missing} not in the local cache and the hub cannot be reached; "
        "check the name and the network, or use `tiny` or a preset's random weights"
    )
