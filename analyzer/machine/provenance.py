"""The provenance of a figure: source, versions, host. Every recorded result includes it."""

import os
import platform
import subprocess
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

from decodescope.analyzer.schema.report import Environment
from decodescope.version import __version__

_GIT_TIMEOUT_S = 10


def host_facts() -> Environment:
    """Date (UTC), decodescope's version and commit, Python, platform, processor and its cores."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "decodescope": __version__,
        "commit": source_commit(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_cores": os.cpu_count(),
    }


def package_version(name: str) -> str | None:
    """The installed version of a distribution, None if it is not installed."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def cpu_name() -> str | None:
    """The processor's model name if the system reports it."""
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        for line in cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines():
            key, _, value = line.partition(":")
            if key.strip() == "model name":
                return value.strip()
    return platform.processor() or None


def source_commit() -> str | None:
    """The commit of the checkout that this package runs from, with "+" if tracked files have
    changed since; None for an installed package."""
    checkout = Path(__file__).resolve().parents[2]
    if not (checkout / ".git").exists():
        return None
    commit = _git(checkout, "rev-parse", "--verify", "HEAD")
    changed = _git(checkout, "status", "--porcelain", "--untracked-files=no")
    return f"{commit}+" if commit and changed else commit


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of a git command, None if git is missing or fails."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments],
            capture_output=True,
            text=True,
            check=True,
            timeout=_GIT_TIMEOUT_S,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()
