"""`--tp`: what cannot be asked for is one line, and no rank is started."""

from pathlib import Path

import pytest

from decodescope.analyzer.errors import InputError
from decodescope.variants.parallel import launcher
from decodescope.variants.registry import Variant, require_split
from tests.helpers.command import Command
from tests.helpers.ranks.own import STEPS, own_files
from tests.helpers.ranks.runs import PER_STEP, a_run

RUN = ("run", "--model", "tiny", "--device", "cpu")
RANK = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}


@pytest.fixture(autouse=True)
def _no_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*started: object) -> None:
        raise AssertionError(started)

    monkeypatch.setattr(launcher, "launch", refuse)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--tp", "0"), "'--tp': 0 is not in the range"),
        (("--tp", "two"), "'--tp': 'two' is not a valid"),
        (("--ep",), "--ep: splits experts over ranks; add --tp N"),
        (("--tp", "2", "--variant", "unknown"), "unknown variant 'unknown'"),
        (("--tp", "2", "--prompt-ids", "1,x"), "--prompt-ids 1,x"),
        (("--tp", "2", "--batch", "0"), "batch 0"),
        (("--tp", "2", "--model", "none@random"), "unknown model 'none@random'"),
        (("--tp", "2", "--trace", "window.txt"), "--trace window.txt: must end in .json"),
        (("--device", "mps"), "'--device': 'mps' is not one of"),
    ],
)
def test_options_that_cannot_be(decodescope: Command, options: tuple[str, ...], says: str) -> None:
    done = decodescope(*RUN, *options)
    assert done.code == 2
    assert says in done.only_line


def test_the_files_of_all_ranks_are_checked_first(decodescope: Command, tmp_path: Path) -> None:
    (tmp_path / "window.rank1.json").mkdir()
    done = decodescope(*RUN, "--tp", "2", "--trace", str(tmp_path / "window.json"))
    assert done.code == 2
    assert done.only_line.endswith("window.rank1.json: is a folder; name a file")


def test_ctrl_c_while_the_launcher_starts_has_no_traceback(
    decodescope: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*started: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(launcher, "launch", interrupted)
    done = decodescope(*RUN, "--tp", "2")
    assert (done.code, done.out, done.err.strip()) == (130, "", "")


def test_a_variant_that_does_not_split_is_refused() -> None:
    variant = Variant("mine", "a package's", False, lambda *asked: None)  # type: ignore[arg-type, return-value]
    require_split(variant, 1)
    with pytest.raises(InputError, match="--tp 2: variant mine has no form for several ranks"):
        require_split(variant, 2)


@pytest.mark.parametrize("command", [("live", "--once"), ("compare", "--variants", "a,b")])
@pytest.mark.parametrize("rank", [0, 1])
def test_commands_that_start_ranks_are_refused_in_one_line_on_ranks(
    decodescope: Command, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...], rank: int
) -> None:
    for name, value in RANK.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("RANK", str(rank))
    done = decodescope(*command)
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == (0 if rank else 1)
    assert rank or "use --tp N in place of torchrun" in done.error_line


def test_an_opened_window_says_how_many_ranks_shared_the_step(
    decodescope: Command, tmp_path: Path
) -> None:
    window, _ = own_files(tmp_path, a_run(2, STEPS * PER_STEP))
    done = decodescope("open", str(window), "--once", "--size", "120x40")
    assert (done.code, "TP 2" in done.out) == (0, True)
