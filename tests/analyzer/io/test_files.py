"""Files are written whole, through links, never over an input; what is no file is written to."""

import gzip
import os
import stat
import threading
from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import (
    GrowingFile,
    replacing_stream,
    write_atomically,
    write_json,
    write_new_file,
)
from decodescope.analyzer.io.output_paths import (
    check_writable,
    check_writable_in,
    is_stdout,
    make_folder,
    output_path,
)
from decodescope.analyzer.schema.report import Finding

OLD, NEW = b"old", b"new content"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    path = tmp_path / "old.txt"
    path.write_bytes(OLD)
    return path


def names(folder: Path) -> list[str]:
    return sorted(found.name for found in folder.iterdir())


def test_json_for_people_is_indented_and_ends_with_a_newline(tmp_path):
    path = tmp_path / "result.json"
    write_json(path, Finding("code", "a sentence"))
    assert path.read_text() == '{\n  "code": "code",\n  "message": "a sentence"\n}\n'
    assert names(tmp_path) == ["result.json"]


def test_a_folder_that_does_not_exist_is_an_input_error(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        write_json(tmp_path / "none" / "result.json", {})


@pytest.mark.parametrize("name", ["old.txt", "old.txt.gz"])
def test_an_error_keeps_the_old_file_and_leaves_nothing_behind(tmp_path, name):
    (tmp_path / name).write_bytes(OLD)

    def interrupted() -> None:
        with replacing_stream(tmp_path / name) as file:
            file.write(NEW)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert (tmp_path / name).read_bytes() == OLD
    assert names(tmp_path) == [name]


def test_a_link_stays_and_the_file_it_leads_to_is_replaced(tmp_path, old):
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "second").symlink_to("../old.txt")
    (tmp_path / "first").symlink_to(tmp_path / "folder" / "second")
    before = old.stat().st_ino
    write_atomically(tmp_path / "first", NEW)
    assert (tmp_path / "first").is_symlink()
    assert (tmp_path / "folder" / "second").is_symlink()
    assert old.read_bytes() == NEW
    assert old.stat().st_ino != before
    assert names(tmp_path) == ["first", "folder", "old.txt"]


def test_a_dangling_link_stays_and_its_file_is_created(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder/later")
    check_writable(tmp_path / "link", "-o")
    write_atomically(tmp_path / "link", NEW)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "later").read_bytes() == NEW


def test_links_in_a_circle_are_an_input_error(tmp_path):
    (tmp_path / "one").symlink_to("two")
    (tmp_path / "two").symlink_to("one")
    for attempt in (
        lambda: write_atomically(tmp_path / "one", NEW),
        lambda: check_writable(tmp_path / "one", "-o"),
    ):
        with pytest.raises(InputError, match="lead in a circle"):
            attempt()


def test_the_part_of_a_killed_process_is_removed_and_that_of_a_living_one_stays(tmp_path):
    """The name may be one of another program, and the file a link to something else."""
    (tmp_path / ".decodescope-0123abcd.part").write_bytes(b"half of a f")
    kept = [tmp_path / name for name in (".part", ".decodescope-0123abc.part", "decodescope.part")]
    for path in kept:
        path.touch()
    (tmp_path / ".decodescope-00000000.part").symlink_to(kept[0])
    with replacing_stream(tmp_path / "long") as long:
        long.write(b"begun")
        write_atomically(tmp_path / "short", NEW)
        assert len(list(tmp_path.glob(".decodescope-*.part"))) == 3
    assert (tmp_path / "long").read_bytes() == b"begun"
    left = [*(path.name for path in kept), ".decodescope-00000000.part", "long", "short"]
    assert names(tmp_path) == sorted(left)


def test_a_part_that_is_taken_for_abandoned_before_it_is_locked_is_made_again(
    tmp_path, monkeypatch
):
    taken = []

    def flock(file, how):
        if not taken:
            taken.append(file.name)
            os.unlink(file.name)

    monkeypatch.setattr("fcntl.flock", flock)
    write_atomically(tmp_path / "new", NEW)
    assert taken
    assert (tmp_path / "new").read_bytes() == NEW


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o666, 0o755])
def test_an_existing_file_keeps_its_permissions_and_is_never_more_readable(old, mode):
    old.chmod(mode)
    with replacing_stream(old) as file:
        file.write(NEW)
        (part,) = old.parent.glob(".*.part")
        assert stat.S_IMODE(part.stat().st_mode) & ~mode == 0
    assert old.read_bytes() == NEW
    assert stat.S_IMODE(old.stat().st_mode) == mode


def test_a_new_file_has_the_permissions_of_any_new_file(tmp_path):
    (tmp_path / "usual").touch()
    write_atomically(tmp_path / "new", NEW)
    write_new_file(tmp_path, "numbered", ".txt", lambda file: file.write(NEW))
    modes = {path.stat().st_mode for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_read_only_file_is_not_replaced(old):
    old.chmod(0o444)
    with pytest.raises(InputError, match="not writable"):
        check_writable(old, "-o")
    with pytest.raises(InputError, match="Permission denied"):
        write_atomically(old, NEW)
    assert old.read_bytes() == OLD


def test_a_fifo_is_written_to(tmp_path):
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(fifo.read_bytes()))
    reader.start()
    check_writable(fifo, "-o")
    write_atomically(fifo, NEW)
    reader.join(10)
    assert read == [NEW]
    assert stat.S_ISFIFO(fifo.stat().st_mode)
    assert names(tmp_path) == ["fifo"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_device_is_written_to(tmp_path, linked):
    path = Path("/dev/null")
    if linked:
        path = tmp_path / "null"
        path.symlink_to("/dev/null")
    check_writable(path, "-o", [path])
    write_atomically(path, NEW)
    assert stat.S_ISCHR(path.stat().st_mode)
    assert names(tmp_path) == (["null"] if linked else [])


@pytest.mark.parametrize("flags", [os.O_TRUNC, os.O_APPEND])
@pytest.mark.parametrize("through_link", [False, True])
def test_an_open_descriptor_is_written_where_it_stands(tmp_path, flags, through_link):
    """As a shell's `>` and `>>`: what stands there before and after stays."""
    kept = tmp_path / "kept"
    kept.write_bytes(OLD)
    descriptor = os.open(kept, os.O_WRONLY | flags)
    os.write(descriptor, b"before ")
    path = Path(f"/dev/fd/{descriptor}")
    if through_link:
        (tmp_path / "link").symlink_to(path)
        path = tmp_path / "link"
    check_writable(path, "-o")
    with replacing_stream(path) as file:
        file.write(NEW)
    os.write(descriptor, b" after")
    os.close(descriptor)
    expected = b"before " + NEW + b" after"
    assert kept.read_bytes() == (OLD + expected if flags == os.O_APPEND else expected)
    with pytest.raises(InputError, match="Bad file descriptor"):
        check_writable(path, "-o")


def test_a_dash_is_standard_output_and_a_file_of_that_name_can_be_written(
    tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    assert is_stdout(output_path("-"))
    assert is_stdout(Path("/dev/stdout"))
    assert not is_stdout(output_path("./-"))
    assert not is_stdout(None)
    print("printed before", end=" ")  # noqa: T201
    write_atomically(output_path("-"), b"then written")
    write_atomically(output_path("./-"), NEW)
    assert capfd.readouterr().out == "printed before then written"
    assert Path("-").read_bytes() == NEW


def test_a_name_ending_in_gz_is_compressed_whatever_it_leads_to(tmp_path):
    (tmp_path / "link.gz").symlink_to("plain")
    with replacing_stream(tmp_path / "link.gz") as file:
        file.write(NEW)
    assert gzip.decompress((tmp_path / "plain").read_bytes()) == NEW


def same_file(how: str, path: Path) -> Path:
    folder = path.parent / "elsewhere"
    folder.mkdir()
    other = folder / "other"
    if how == "hard link":
        other.hardlink_to(path)
    elif how == "link":
        other.symlink_to(path)
    elif how == "link to the folder":
        other.symlink_to(path.parent)
        return other / path.name
    elif how == "relative":
        return Path(os.path.relpath(path))
    elif how == "descriptor":
        return Path(f"/dev/fd/{os.open(path, os.O_RDONLY)}")
    else:
        return folder / ".." / path.name
    return other


@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize(
    "how", ["hard link", "link", "link to the folder", "relative", "dotted", "descriptor"]
)
def test_an_output_that_is_an_input_is_refused(tmp_path, old, how, swapped):
    other = same_file(how, old)
    output, read = (old, other) if swapped else (other, old)
    unrelated = tmp_path / "unrelated"
    unrelated.write_bytes(OLD)
    with pytest.raises(InputError, match=f"^-o {output}: is the input {read}; name another file$"):
        check_writable(output, "-o", [None, unrelated, read])
    check_writable(output, "-o", [None, unrelated])


def test_two_names_for_one_missing_file_are_the_same_file(tmp_path):
    (tmp_path / "link").symlink_to("missing")
    with pytest.raises(InputError, match="is the input"):
        check_writable(tmp_path / "link", "-o", [tmp_path / "missing"])


def test_a_folder_of_outputs_is_checked_file_by_file(tmp_path):
    folder = tmp_path / "new" / "folder"
    check_writable_in(folder, ["one"], "--out")
    assert names(tmp_path) == []
    make_folder(folder, "--out")
    make_folder(folder, "--out")
    (folder / "one").mkdir()
    with pytest.raises(InputError, match=r"^--out .*/one: is a folder"):
        check_writable_in(folder, ["two", "one"], "--out")
    (tmp_path / "file").touch()
    for path in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(InputError, match=r"/file is not a folder"):
            check_writable_in(path, [], "--out")
        with pytest.raises(InputError, match="cannot be created"):
            make_folder(path, "--out")
    with pytest.raises(InputError, match=r"^--out -: takes a folder, not standard output"):
        check_writable_in(Path("-"), [], "--out")


def test_a_name_too_long_is_refused_before_any_work(tmp_path):
    with pytest.raises(InputError, match="File name too long"):
        check_writable(tmp_path / ("x" * 300), "-o")


@pytest.mark.parametrize("number", ["999999", "9" * 30])
def test_a_descriptor_that_is_not_open_is_an_input_error(number):
    path = Path(f"/dev/fd/{number}")

    def write() -> None:
        check_writable(path, "-o")
        write_atomically(path, NEW)

    with pytest.raises(InputError, match=f"{path}: cannot be written"):
        write()


def test_a_new_file_takes_the_first_free_name(tmp_path):
    def write(file):
        file.write(NEW)

    paths = [write_new_file(tmp_path, "a/b", ".txt", write) for _ in range(3)]
    assert [path.name for path in paths] == ["a-b.txt", "a-b-2.txt", "a-b-3.txt"]
    with pytest.raises(OSError, match="full"):
        write_new_file(tmp_path, "c", ".txt", lambda file: (_ for _ in ()).throw(OSError("full")))
    assert len(names(tmp_path)) == 3


def test_a_growing_file_never_touches_what_an_earlier_one_left(tmp_path):
    path = tmp_path / "run"
    killed = [GrowingFile(path) for _ in range(2)]
    for number, file in enumerate(killed):
        file.append(bytes([number]))
        file.abandon()
    finished = GrowingFile(path)
    finished.append(NEW)
    assert names(tmp_path) == ["run-2.partial", "run-3.partial", "run.partial"]
    finished.close()
    assert path.read_bytes() == NEW
    assert (tmp_path / "run.partial").read_bytes() == b"\0"
    assert (tmp_path / "run-2.partial").read_bytes() == b"\1"


def test_a_growing_file_follows_links_and_keeps_permissions(tmp_path, old):
    old.chmod(0o640)
    (tmp_path / "link").symlink_to(old)
    growing = GrowingFile(tmp_path / "link")
    growing.append(NEW)
    assert old.read_bytes() == OLD
    growing.close()
    assert (tmp_path / "link").is_symlink()
    assert old.read_bytes() == NEW
    assert stat.S_IMODE(old.stat().st_mode) == 0o640


def test_a_growing_file_is_no_terminal():
    master, terminal = os.openpty()
    with pytest.raises(InputError, match="is a terminal"):
        GrowingFile(Path(os.ttyname(terminal)))
    os.close(master)
    os.close(terminal)
