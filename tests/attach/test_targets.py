"""Which processes are meant by an id, found in a /proc of the test's own."""

import os
import threading
from pathlib import Path

import pytest

from decodescope.analyzer.errors import DecodescopeError, InputError, MissingRequirement
from decodescope.attach.deadline import in_daemon_thread
from decodescope.attach.kineto.processes import (
    all_processes,
    has_ended,
    job_processes,
    read_process,
)

TORCH = "7f00-7f01 r-xp 0 08:01 5 /opt/torch/lib/libtorch_cpu.so\n"
DOOR = "KINETO_USE_DAEMON=1"
NAMESPACES = ("net", "mnt", "pid")


def plant(
    proc: Path,
    pid: int,
    *environment: str,
    parent: int = 1,
    maps: str = TORCH,
    user: int | None = None,
    state: str = "S",
    namespace: str = "1",
) -> None:
    """A process of this user with PyTorch and these variables, as /proc would show it."""
    for name, number in ((str(pid), namespace), ("self", "1")):
        folder = proc / name / "ns"
        folder.mkdir(parents=True, exist_ok=True)
        for kind in NAMESPACES:
            link = folder / kind
            link.unlink(missing_ok=True)
            link.symlink_to(f"{kind}:[{number}]")
    folder = proc / str(pid)
    fields = [state, str(parent), *["0"] * 17, str(1000 + pid)]
    (folder / "stat").write_text(f"{pid} (a) b) {' '.join(fields)}\n")
    uid = os.geteuid() if user is None else user
    (folder / "status").write_text(f"Name:\tpython\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\n")
    (folder / "environ").write_bytes("\0".join(environment).encode() + b"\0")
    (folder / "maps").write_text(maps)
    (folder / "cwd").unlink(missing_ok=True)
    (folder / "cwd").symlink_to("/srv")
    (folder / "cmdline").write_bytes(b"/usr/bin/python\0-u\0/srv/serve.py\0--port\x001\0")


def torchrun(proc: Path, launcher: int, ranks: list[int], port: int) -> None:
    """A launcher that has loaded PyTorch too, its ranks, and a worker of the first rank's data
    loader, which has its parent's variables."""
    plant(proc, launcher, DOOR)
    for rank, pid in enumerate(ranks):
        variables = (DOOR, f"RANK={rank}", f"LOCAL_RANK={rank}", f"MASTER_PORT={port}")
        plant(proc, pid, *variables, parent=launcher)
    plant(proc, ranks[0] + 1, DOOR, "RANK=0", f"MASTER_PORT={port}", parent=ranks[0])


def pids(*targets: int, proc: Path) -> list[int]:
    return [process.pid for process in job_processes(targets, proc)]


def test_a_process_alone_is_itself(tmp_path: Path) -> None:
    plant(tmp_path, 7, DOOR)
    plant(tmp_path, 8, DOOR)
    assert pids(7, proc=tmp_path) == [7]
    assert pids(8, 7, 8, proc=tmp_path) == [7, 8]
    process = job_processes([7], tmp_path)[0]
    assert process.title == "process 7 (python serve.py)"
    assert process.environment == {"KINETO_USE_DAEMON": "1"}


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("/usr/bin/python3|-u|/srv/serve.py|--port|1", "python3 serve.py"),
        ("python|-m|torch.distributed.run|x.py", "python -m torch.distributed.run"),
        ("python|-c|import torch\nprint(1)", "python -c"),
        ("python|-m", "python -m"),
        ("VLLM::EngineCore", "VLLM::EngineCore"),
        ("python|" + "x" * 100, "python " + "x" * 53),
        ("python|/srv/\udcff.py", r"python \xff.py"),
        ("", ""),
    ],
)
def test_a_process_is_named_by_its_program_and_script(
    tmp_path: Path, command: str, shown: str
) -> None:
    plant(tmp_path, 7, DOOR)
    (tmp_path / "7" / "cmdline").write_bytes(os.fsencode(command.replace("|", "\0")) + b"\0")
    assert job_processes([7], tmp_path)[0].title == f"process 7 ({shown})"


def test_a_rank_and_a_launcher_stand_for_all_ranks_of_the_job(tmp_path: Path) -> None:
    torchrun(tmp_path, 10, [40, 30, 20], port=1)
    torchrun(tmp_path, 11, [50, 60], port=2)
    for target in (10, 20, 30, 40):
        assert pids(target, proc=tmp_path) == [40, 30, 20]
    assert pids(60, proc=tmp_path) == [50, 60]
    # Also where one shell started both jobs.
    for pid in (20, 30, 40, 50, 60):
        stat = tmp_path / str(pid) / "stat"
        stat.write_text(stat.read_text().replace(" S 10 ", " S 1 ").replace(" S 11 ", " S 1 "))
    assert pids(30, proc=tmp_path) == [40, 30, 20]


def test_all_are_ranks_and_single_processes_but_no_launchers(tmp_path: Path) -> None:
    torchrun(tmp_path, 10, [20, 30], port=1)
    plant(tmp_path, 5, DOOR)
    plant(tmp_path, 6)
    plant(tmp_path, 8, DOOR, maps="")
    plant(tmp_path, 9, DOOR, user=os.geteuid() + 1)
    plant(tmp_path, 12, DOOR, namespace="2")
    found = [process.pid for process in all_processes(tmp_path)]
    # The worker of the data loader (21) asks for no window, and is left out only then.
    assert found == [5, 20, 21, 30]


def test_ranks_of_one_job_are_together_and_in_order(tmp_path: Path) -> None:
    torchrun(tmp_path, 10, [20, 30], port=2)
    torchrun(tmp_path, 11, [25, 35], port=1)
    plant(tmp_path, 24, DOOR)
    assert [process.pid for process in all_processes(tmp_path)] == [24, 25, 26, 35, 20, 21, 30]
    assert pids(20, 35, 24, proc=tmp_path) == [24, 25, 35, 20, 30]


def test_all_of_nothing_is_an_error(tmp_path: Path) -> None:
    plant(tmp_path, 6)
    with pytest.raises(MissingRequirement, match="no PyTorch process of this user"):
        all_processes(tmp_path)


@pytest.mark.parametrize(
    ("variables", "planted", "error", "message"),
    [
        ((DOOR,), {"user": 1 << 20}, InputError, "belongs to the user with id 1048576, and only"),
        ((DOOR,), {"maps": "7f00 /lib/libc.so\n"}, InputError, "has not loaded PyTorch"),
        ((), {}, MissingRequirement, "without KINETO_USE_DAEMON=1"),
        ((DOOR,), {"namespace": "2"}, MissingRequirement, "in another container"),
        ((DOOR,), {"state": "Z"}, InputError, "has ended, or the system protects it"),
    ],
)
def test_a_process_that_cannot_be_attached_to_is_one_line(
    tmp_path: Path,
    variables: tuple[str, ...],
    planted: dict[str, object],
    error: type[DecodescopeError],
    message: str,
) -> None:
    plant(tmp_path, 7, *variables, **planted)  # type: ignore[arg-type]
    with pytest.raises(error, match=message) as raised:
        job_processes([7], tmp_path)
    assert str(raised.value).startswith("process 7")
    assert "\n" not in str(raised.value)


def test_a_process_that_set_the_variable_itself_has_libkinetos_socket(tmp_path: Path) -> None:
    plant(tmp_path, 7)
    plant(tmp_path, 8)
    plant(tmp_path, 9, maps="")
    sockets = b"0: 2 0 0 2 01 12 @\xff\n\n0: 2 0 0 2 01 34 @dynoconfigclient1-2@\n"
    for pid, inode in ((7, 34), (8, 12), (9, 34)):
        (tmp_path / f"{pid}/net").mkdir()
        (tmp_path / f"{pid}/net/unix").write_bytes(b"Num RefCount Path\n" + sockets)
        (tmp_path / f"{pid}/fd").mkdir()
        (tmp_path / f"{pid}/fd/3").symlink_to(f"socket:[{inode}]")
    assert [process.pid for process in all_processes(tmp_path)] == [7]


def test_a_missing_process_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="process 7: does not run; give the id"):
        job_processes([7], tmp_path)


def test_a_thread_is_told_from_its_process() -> None:
    def attach_to_itself() -> None:
        job_processes([threading.get_native_id()])

    thread = in_daemon_thread(attach_to_itself)
    with pytest.raises(InputError) as raised:
        thread.result(10)
    tid, _, rest = str(raised.value).partition(": ")
    assert tid.isdigit()
    assert rest == f"is a thread of process {os.getpid()}; give {os.getpid()}"


def test_a_later_process_with_the_same_id_is_another(tmp_path: Path) -> None:
    plant(tmp_path, 7, DOOR)
    process = read_process(7, tmp_path)
    assert process is not None
    assert not has_ended(process, tmp_path)
    stat = tmp_path / "7" / "stat"
    stat.write_text(stat.read_text().replace(" 1007", " 2007"))
    assert has_ended(process, tmp_path)
    plant(tmp_path, 7, DOOR, state="Z")
    assert has_ended(process, tmp_path)


def test_this_process_is_read_from_the_real_proc() -> None:
    process = read_process(os.getpid())
    assert process is not None
    assert process.parent == os.getppid()
    assert process.is_here
    assert not has_ended(process)
