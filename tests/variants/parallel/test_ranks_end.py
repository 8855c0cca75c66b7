"""Ranks that fail, stop, or do not come: one line that names the rank, and all of them end."""

import os
import signal
import socket
import time
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
import torch

from decodescope.analyzer.errors import InputError, MissingRequirement, ModelError
from decodescope.analyzer.protocol.messages import WorkerConfig
from decodescope.variants.measuring.run import run_variant
from decodescope.variants.parallel import group as group_module
from decodescope.variants.parallel.group import (
    MEET_S,
    Versions,
    group_of_this_process,
    require_gpus,
    require_size,
    said_of_peers,
)
from decodescope.variants.parallel.launcher import END_S
from decodescope.variants.parallel.place import Place, is_rank, place_of
from decodescope.variants.parallel.ranks import Ranks
from decodescope.variants.parallel.watch import SILENT_S
from tests.helpers.rank_groups import StartedRank, started_ranks

CONFIG = WorkerConfig(batch=1, tokens=4, variant="eager", device="cpu", model="tiny", tp=2)
READY = "ready"


def _decode(config: WorkerConfig, folder: Path, meet_s: float = 30.0) -> None:
    with group_of_this_process(meet_s, silent_s=1.5) as group:
        asked = group.shared(lambda: config, WorkerConfig)
        ranks = group.join(asked)
        run_variant(asked, None, lambda stage: None, ranks)


def _fail(rank: int, error: Exception) -> None:
    with group_of_this_process(30.0, silent_s=20.0) as group:
        ranks = group.join(CONFIG)
        if ranks.rank == rank:
            raise error
        torch.distributed.all_reduce(torch.ones(1))


def _wait(folder: Path) -> None:
    with group_of_this_process(30.0, silent_s=1.5) as group:
        group.join(CONFIG)
        (folder / f"{READY}{group.ranks.rank}").touch()
        time.sleep(60)


def _with_versions(transformers: list[str]) -> None:
    own = Versions("1", "2.13", transformers[int(os.environ["RANK"])])
    group_module.these_versions = lambda: own
    with group_of_this_process(30.0, silent_s=20.0):
        time.sleep(60)


def _reported(ranks: list[StartedRank]) -> tuple[list[int | None], list[str]]:
    """The exit codes, and the lines of all ranks that are errors."""
    ended = [rank.ended() for rank in ranks]
    lines = [line for _, error in ended for line in error.splitlines()]
    return [code for code, _ in ended], [line for line in lines if line.startswith("decodescope: ")]


def _ranks_that_say(text: str, ranks: list[StartedRank]) -> int:
    return sum(text in rank.error.read_text() for rank in ranks)


def _until_ready(folder: Path, size: int = 2) -> None:
    deadline_s = time.monotonic() + 60
    while not all((folder / f"{READY}{rank}").exists() for rank in range(size)):
        assert time.monotonic() < deadline_s
        time.sleep(0.02)


def test_a_reason_is_told_within_30_s() -> None:
    assert max(MEET_S, SILENT_S) + END_S + 2 < 30


@pytest.mark.parametrize("stopped", [0, 1])
def test_a_rank_that_is_stopped_is_named_and_ended(tmp_path: Path, stopped: int) -> None:
    with started_ranks(2, tmp_path, _wait, tmp_path) as ranks:
        _until_ready(tmp_path)
        os.kill(ranks[stopped].pid, signal.SIGSTOP)
        codes, lines = _reported(ranks)
    assert codes[stopped] == -signal.SIGKILL
    assert codes[1 - stopped] == 3
    (line,) = lines
    assert line.startswith(f"decodescope: rank {stopped} (process {ranks[stopped].pid} on ")
    assert "has not answered for" in line


def test_a_rank_that_is_killed_ends_the_others(tmp_path: Path) -> None:
    """As where no launcher sees it: the others miss it."""
    with started_ranks(3, tmp_path, _wait_of_three, tmp_path) as ranks:
        _until_ready(tmp_path, 3)
        os.kill(ranks[2].pid, signal.SIGKILL)
        codes, lines = _reported(ranks[:2])
    assert codes == [3, 3]
    (line,) = lines
    assert line.startswith(f"decodescope: rank 2 (process {ranks[2].pid} on ")


def _wait_of_three(folder: Path) -> None:
    with group_of_this_process(30.0, silent_s=1.5) as group:
        (folder / f"{READY}{group.ranks.rank}").touch()
        time.sleep(60)


def test_a_rank_out_of_memory_is_named_and_the_others_end(tmp_path: Path) -> None:
    error = MissingRequirement("out of memory while loading tiny; try a smaller model")
    with started_ranks(2, tmp_path, _fail, 1, error) as ranks:
        codes, lines = _reported(ranks)
    assert codes == [3, 3]
    assert lines == [f"decodescope: rank 1: {error}"]
    assert "Traceback" not in ranks[0].error.read_text()


def test_an_error_that_nobody_foresaw_has_the_traceback_of_its_rank(tmp_path: Path) -> None:
    with started_ranks(2, tmp_path, _fail, 1, ZeroDivisionError("odd")) as ranks:
        codes, lines = _reported(ranks)
    assert codes == [70, 70]
    assert lines == ["decodescope: rank 1: ZeroDivisionError: odd"]
    assert "Traceback" in ranks[1].error.read_text()


def test_an_error_that_all_ranks_have_is_raised_by_rank_0_alone(tmp_path: Path) -> None:
    asked = msgspec.structs.replace(CONFIG, prompt_ids=(999999,))
    with started_ranks(2, tmp_path, _decode, asked, tmp_path) as ranks:
        codes, _ = _reported(ranks)
    # A command ends with the code of the error that it raises; a function's process with 1.
    assert codes in ([1, 2], [2, 2])
    assert _ranks_that_say("999999 is outside the vocabulary of tiny", ranks) == 1


def test_ranks_of_other_versions_are_named(tmp_path: Path) -> None:
    with started_ranks(2, tmp_path, _with_versions, ["5.23", "5.17"]) as ranks:
        codes, _ = _reported(ranks)
    assert codes in ([1, 3], [3, 3])
    unlike = "rank 1 has transformers 5.17, rank 0 5.23: all ranks need the same versions"
    assert _ranks_that_say(unlike, ranks) == 1


def test_a_rank_that_does_not_come_is_named(tmp_path: Path) -> None:
    with started_ranks(3, tmp_path, _decode, CONFIG, tmp_path, 2.0, started=2) as ranks:
        codes, _ = _reported(ranks)
    assert codes in ([1, 3], [3, 3])
    assert _ranks_that_say("rank 2 of 3 has not joined within 2 s", ranks) == 1


def test_a_port_that_is_taken_and_a_store_that_is_missing_are_named(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = Place(Ranks(0, 2), 0, 2, ("127.0.0.1", taken.getsockname()[1]), True)
        with pytest.raises(MissingRequirement, match=r"cannot open port \d+ on .*is taken"):
            group_module.Group(place, 1.0, 1.0)
        port = taken.getsockname()[1]
    missing = replace(place, ranks=Ranks(1, 2), address=("127.0.0.1", port))
    with pytest.raises(MissingRequirement, match=r"rank 1 finds no store at 127\.0\.0\.1"):
        group_module.Group(missing, 0.5, 1.0)


def test_fewer_gpus_than_ranks() -> None:
    place = Place(Ranks(0, 4), 0, 4, ("", 0), False)
    with pytest.raises(MissingRequirement, match=r"4 ranks on .*, but it has 1 GPU;.*cuda:0"):
        require_gpus(place, 1, shared=False)
    require_gpus(place, 1, shared=True)
    require_gpus(place, 4, shared=False)


def test_gpus_without_peer_access_are_named() -> None:
    assert said_of_peers(4, lambda first, second: True) == ""
    said = said_of_peers(3, lambda first, second: second != 2)
    assert said.startswith("GPUs 0 and 2 and 1 more pairs have no access")
    assert said.count("\n") == 1


def test_another_number_of_ranks_than_asked_for() -> None:
    with pytest.raises(InputError, match="--tp 2, but 4 ranks were started"):
        require_size(CONFIG, 4)


def test_the_environment_names_the_place() -> None:
    torchrun = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "MASTER_ADDR": "host",
        "MASTER_PORT": "29500",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
    }
    assert is_rank(torchrun)
    assert place_of(torchrun) == Place(Ranks(3, 4), 1, 2, ("host", 29500), False)
    assert not is_rank(torchrun | {"WORLD_SIZE": "1"})
    assert not is_rank({"RANK": "0", "WORLD_SIZE": "2"})
    for odd in (
        {"WORLD_SIZE": "two"},
        {"WORLD_SIZE": "2"},
        {"RANK": "-1"},
        {"MASTER_PORT": "70000"},
    ):
        (named,) = (f"{name}={value}" for name, value in odd.items())
        with pytest.raises(InputError, match=f"{named}.*: no place of a rank"):
            place_of(torchrun | odd)


def test_the_model_is_refused_before_it_is_loaded(tmp_path: Path) -> None:
    from decodescope.variants.measuring.preparation import prepare

    with pytest.raises(ModelError, match="num_attention_heads 4 cannot be split over 3 ranks"):
        prepare(CONFIG, lambda stage: None, Ranks(0, 3))
