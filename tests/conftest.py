"""Tests marked `gpu` need a CUDA device; all others run anywhere.

Tests with the fixture `device` use the GPU if there is one: `make test-gpu` runs them too.
"""

import atexit
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.helpers import gpu_memory, preloaded
from tests.helpers.foreign.traces import missing_traces_line, trace_folder

REPOSITORY = Path(__file__).resolve().parent.parent

# torch reads this once, here and in child processes. Its threads spin while they wait: on busy
# cores a layer of the bundled model took 15 ms with two threads and under 1 ms with one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test asks the hub. Set here, child processes can be forks of one that was started with it.
os.environ.setdefault("HF_HUB_OFFLINE", "1")

# Of several GPUs, each process of pytest-xdist has another one first, and can use all.
_GPUS = [path.name.removeprefix("nvidia") for path in sorted(Path("/dev").glob("nvidia[0-9]"))]
_GPUS = os.environ.get("CUDA_VISIBLE_DEVICES", ",".join(_GPUS)).split(",")
if len(_GPUS) > 1 and (_WORKER := os.environ.get("PYTEST_XDIST_WORKER")):
    _first = int(_WORKER.removeprefix("gw")) % len(_GPUS)
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(_GPUS[_first:] + _GPUS[:_first])

# pytest imports readline, which sets these for child processes, and so for workers of pytest-xdist.
for name in ("COLUMNS", "LINES"):
    os.environ.pop(name, None)

# What the command remembers for its user is not what tests did.
_HOME = tempfile.TemporaryDirectory(prefix="decodescope-tests-")
for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME"):
    os.environ[name] = _HOME.name

# The time an example takes depends on the machine, not on the code. Half as many as usual: other
# draws come with every run.
settings.register_profile("untimed", deadline=None, max_examples=50)
settings.load_profile("untimed")


def pytest_configure(config: pytest.Config) -> None:
    """Processes that need torch are forks of one that has it, where no GPU driver is.

    A shell starts background jobs with SIGINT ignored, and nohup a program with SIGHUP ignored.
    Child processes inherit that, and the command respects it, but the tests of signals need the
    default. A handler is not inherited, and one that does nothing lets the tests outlive a hangup.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda number, frame: None)
    if sys.platform == "linux" and not Path("/dev/nvidiactl").exists():
        preloaded.install(preloaded.ForkServer())
    if config.args_source is config.ArgsSource.TESTPATHS and hasattr(config, "workerinput"):
        _begin_apart(config, **config.workerinput)


def _begin_apart(config: pytest.Config, workerid: str, workercount: int, **_others: object) -> None:
    """Let this process of pytest-xdist collect from another file on than the others.

    pytest compiles a file in 30 ms and keeps that: each process compiles its share, and reads the
    others."""
    files = sorted(str(file) for folder in config.args for file in Path(folder).rglob("test_*.py"))
    first = len(files) * int(workerid.removeprefix("gw")) // workercount
    config.args[:] = files[first:] + files[:first]


def _has_cuda() -> bool:
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def pytest_collectstart() -> None:
    """Modules and tests stay: looking for garbage among them takes an eighth of the collection."""
    gc.disable()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "device" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.any_device)
    gpu_items = [item for item in items if item.get_closest_marker("gpu")]
    if gpu_items and not _has_cuda():
        for item in gpu_items:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))
    # At the end no process waits for a long test of another. Every process has the same order.
    items.sort(key=lambda item: (item.get_closest_marker("slow") is None, str(item.path)))


def pytest_collection_finish() -> None:
    """Modules and tests stay to the end: a collection of garbage need not look at them. With
    thresholds for a test's objects, those of the analyzer take 5 to 9 % less time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(200_000, 20, 50)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """The last line says which tests were skipped for want of traces, and what to do about it."""
    yield
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and not hasattr(session.config, "workerinput"):
        skipped = reporter.stats.get("skipped", ())
        line = missing_traces_line(str(report.longrepr) for report in skipped)
        if line is not None:
            reporter.write_line(line)


def pytest_unconfigure() -> None:
    """What is frozen at the end is never freed, and libraries report it as leaked. Until then
    pytest collects garbage five times."""
    atexit.register(gc.unfreeze)
    _HOME.cleanup()


@pytest.fixture
def device() -> str:
    """Where models and kernels run: the GPU, or the CPU with kernels in Triton's interpreter."""
    return "cuda" if _has_cuda() else "cpu"


@pytest.fixture(autouse=True)
def _gpu_memory_goes_back() -> Iterator[None]:
    yield
    gpu_memory.give_back()


@pytest.fixture
def quick_pilot(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pilots of apps wait until nothing is left to do, and no longer; apps share style sheets."""
    from tests.helpers.app import idle, style_sheets

    idle.use_in(monkeypatch)
    style_sheets.use_in(monkeypatch)


@pytest.fixture(scope="session")
def repository() -> Path:
    """The repository's root."""
    return REPOSITORY


@pytest.fixture(scope="session")
def foreign_traces() -> Path:
    """Real traces recorded by others; the folder is not part of the project. Where it lacks a
    trace, `foreign_traces / name` skips the test."""
    return trace_folder()
