"""Runs cases in this process, as the command line would; for a forked worker."""

import ctypes
import functools
import os
import resource
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn
from unittest import mock

from decodescope.analyzer.errors import MissingRequirement
from decodescope.analyzer.readers import reading
from decodescope.cli.main import main
from decodescope.variants import registry
from decodescope.variants.comparing import job_process
from decodescope.variants.measuring import run
from decodescope.variants.parallel import launcher
from tests.fuzzing.browser import talk
from tests.fuzzing.case import CACHE_HOME, Case
from tests.fuzzing.checks import check_end, check_files, check_output
from tests.fuzzing.mcp_requests import answer_messages
from tests.helpers.command import Done

_MEMORY_BYTES = 2 << 30
_OUTPUT_BYTES = 64 << 20
# Of mallopt(3).
_M_ARENA_MAX = -8


class Runner:
    """Runs one case after another in a new folder each; takes over this process's streams."""

    def __init__(self, root: Path) -> None:
        # Deep enough for an output of "../../x" to stay below the root.
        self._root = root / "some" / "where"
        self._root.mkdir(parents=True, exist_ok=True)
        self._streams = [os.memfd_create(name) for name in ("stdout", "stderr")]
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for number, stream in enumerate(self._streams, start=1):
            os.dup2(stream, number)
        # Else glibc maps 64 MiB for each of many threads, which count.
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 2)
        mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (mapped + _MEMORY_BYTES,) * 2)
        resource.setrlimit(resource.RLIMIT_FSIZE, (_OUTPUT_BYTES,) * 2)
        _leave_out_measurements()
        # Entries of the cache are looked for, whatever the size of a trace.
        reading._LARGE_BYTES = 0

    def problem(self, case: Case) -> tuple[int | None, str]:
        """The exit code, and what is wrong with how it ended; empty if nothing is."""
        folder = Path(tempfile.mkdtemp(dir=self._root))
        done = None
        try:
            _write(case, folder)
            done = self._run(case, folder)
            check_end(case, done)
            check_files(case, folder)
            check_output(case, done)
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = str(error).splitlines()[0] if str(error) else f"{place.filename}:{place.lineno}"
            return (
                None if done is None else done.code,
                f"{type(error).__name__}: {what}: {place.line}",
            )
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return done.code, ""

    def _run(self, case: Case, folder: Path) -> Done:
        for stream in self._streams:
            os.ftruncate(stream, 0)
            os.lseek(stream, 0, os.SEEK_SET)
        sys.argv = ["decodescope", *case.arguments]
        own = {"XDG_CACHE_HOME": str(folder / CACHE_HOME)}
        variables = mock.patch.dict(os.environ, own | case.environment)
        with _decoding(case.decodes), _inside(folder), variables:
            try:
                _main(case)
            except SystemExit as end:
                code = end.code
        assert isinstance(code, int)
        out, err = (os.pread(one, _OUTPUT_BYTES, 0) for one in self._streams)
        return Done(code, out.decode(), err.decode())


def _main(case: Case) -> NoReturn:
    if case.frames:
        sys.exit(talk(case.frames))
    if case.messages:
        sys.exit(answer_messages(case.messages))
    main()


def _write(case: Case, folder: Path) -> None:
    for name, data in case.files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    for name, target in case.links.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(target)


@contextmanager
def _inside(folder: Path) -> Iterator[None]:
    """Run in `folder`; temporary files go there too, where a forgotten one is found."""
    before = os.getcwd()
    os.chdir(folder)
    tempfile.tempdir = str(folder)
    try:
        yield
    finally:
        os.chdir(before)
        tempfile.tempdir = None


def _refuse(*_: object, **__: object) -> NoReturn:
    raise MissingRequirement("nothing is measured here")


def _leave_out_measurements() -> None:
    """A command stops where it would measure: that takes seconds and depends on no input. The
    installed packages stay the same too."""
    job_process.running = _refuse
    launcher.launch = _refuse
    registry.entry_points = functools.cache(registry.entry_points)


@contextmanager
def _decoding(decodes: bool) -> Iterator[None]:
    before = run.ProfilerSession
    if not decodes:
        run.ProfilerSession = _refuse
    try:
        yield
    finally:
        run.ProfilerSession = before
