"""A folder of named baselines: one JSON file each."""

import datetime
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import msgspec

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import encode_json, read_regular_file, write_atomically
from decodescope.analyzer.io.output_paths import make_folder
from decodescope.analyzer.schema.gate_report import BASELINE_VERSION, Baseline, Subject

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,99}")
_SUFFIX = ".json"
# 100 traces of 10,000 steps each have 20 MB.
_MOST_BYTES = 64 << 20
_OPTION = "--folder"


class _Header(msgspec.Struct, frozen=True):
    baseline_version: int


def save_baseline(folder: Path, name: str, subjects: Sequence[Subject]) -> Baseline:
    """Write the baseline `name`, in place of one of that name; creates the folder.

    Raises:
        InputError: the name is none, or the folder or file cannot be written.
    """
    path = _path(folder, name)
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    baseline = Baseline(BASELINE_VERSION, name, now, tuple(subjects))
    make_folder(folder, _OPTION)
    write_atomically(path, encode_json(baseline))
    return baseline


def read_baseline(folder: Path, name: str) -> Baseline:
    """The baseline `name`, which is that of its file.

    Raises:
        InputError: there is none, or it is broken, or of another version.
    """
    path = _existing(folder, name)
    try:
        return _decoded(read_regular_file(path, _MOST_BYTES), path)
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}; remove it, then save the baseline") from error


def baseline_names(folder: Path) -> list[str]:
    """The names of the baselines in the folder; none if there is no folder.

    Raises:
        InputError: the folder cannot be read.
    """
    try:
        files = sorted(folder.iterdir())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise InputError(f"{_OPTION} {folder}: {error.strerror}; name another folder") from error
    return [file.stem for file in files if file.suffix == _SUFFIX and _NAME.fullmatch(file.stem)]


def remove_baseline(folder: Path, name: str) -> None:
    """Remove the baseline `name`.

    Raises:
        InputError: there is none, or it cannot be removed.
    """
    path = _existing(folder, name)
    try:
        path.unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be removed ({error.strerror})") from error


def _path(folder: Path, name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise InputError(
            f"baseline {name}: is no name; use up to 100 letters, digits and . _ + @ -, the first "
            "a letter or digit"
        )
    return folder / f"{name}{_SUFFIX}"


def _existing(folder: Path, name: str) -> Path:
    path = _path(folder, name)
    if path.exists() or path.is_symlink():
        return path
    names = baseline_names(folder)
    near = get_close_matches(name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names) or 'none'}"
    raise InputError(f"no baseline {name} in {folder}: {hint}")


def _decoded(baseline_json: bytes, path: Path) -> Baseline:
    try:
        version = msgspec.json.decode(baseline_json, type=_Header).baseline_version
        if version != BASELINE_VERSION:
            raise InputError(
                f"{path}: a baseline of version {version}, this decodescope reads "
                f"{BASELINE_VERSION}; save it again"
            )
        baseline = msgspec.json.decode(baseline_json, type=Baseline)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"{path}: no baseline ({error}); save it again") from error
    if problem := _problem(baseline):
        raise InputError(f"{path}: {problem}; save it again")
    return msgspec.structs.replace(baseline, name=path.stem)


def _problem(baseline: Baseline) -> str:
    """The reason why a gate cannot use a decoded baseline; empty if it can."""
    for subject in baseline.subjects:
        for sample in subject.samples:
            sizes = {len(times) for times in sample.part_times_ns.values()}
            times_ns = [*sample.step_times_ns, *sum(sample.part_times_ns.values(), ())]
            if not sample.step_times_ns or len(sizes) > 1 or 0 in sizes:
                return f"{subject.name}: a sample without times, or with parts of different steps"
            if min(times_ns) < 0 or max(times_ns) >= 2**63:
                return f"{subject.name}: a time that cannot be"
    names = [subject.name for subject in baseline.subjects]
    if not names or not all(subject.samples for subject in baseline.subjects):
        return "a baseline without samples"
    return "a subject twice" if len(set(names)) < len(names) else ""
