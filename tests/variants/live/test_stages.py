"""Slow stages are announced with the time that they took before."""

from decodescope.analyzer.protocol.messages import Progress
from decodescope.variants.live.stages import Stages


class Clock:
    now_ns = 0

    def __call__(self) -> int:
        return self.now_ns


def run(path, clock, lengths, model="tiny"):
    sent = []
    stages = Stages(sent.append, model, path, clock)
    for stage, ns in lengths:
        stages(stage)
        clock.now_ns += ns
    stages.done()
    return sent


def test_the_second_start_knows_what_the_first_one_took(tmp_path):
    path, clock = tmp_path / "folder" / "stages.json", Clock()
    assert run(path, clock, [("import", 3), ("load", 5)]) == [Progress("import"), Progress("load")]
    again = [Progress("import", "", 3), Progress("load", "", 5)]
    assert run(path, clock, [("import", 30), ("load", 5)]) == again
    assert run(path, clock, [("import", 1)]) == [Progress("import", "", 30)]
    assert run(path, clock, [("import", 1)], model="large") == [Progress("import")]


def test_a_stage_that_failed_is_not_remembered(tmp_path):
    sent, clock = [], Clock()
    stages = Stages(sent.append, "", None, clock)
    stages("build", "compiled")
    clock.now_ns = 9
    stages.failed()
    stages("build", "compiled")
    stages.done()
    stages("build", "eager")
    assert sent == [Progress("build", "compiled")] * 2 + [Progress("build", "eager")]


def test_what_cannot_be_read_or_written_is_no_trouble(tmp_path, capsys):
    path = tmp_path / "stages.json"
    path.write_text("{")
    assert run(path, Clock(), [("import", 3)]) == [Progress("import")]
    assert run(path, Clock(), [("import", 3)]) == [Progress("import", "", 3)]
    assert run(tmp_path, Clock(), [("import", 3)]) == [Progress("import")]
    assert "not kept" in capsys.readouterr().err


def test_the_file_stays_small(tmp_path):
    path, clock = tmp_path / "stages.json", Clock()
    run(path, clock, [(f"stage {number}", number) for number in range(1000)])
    assert path.stat().st_size < 10_000
    assert run(path, clock, [("stage 999", 1)]) == [Progress("stage 999", "", 999)]
    assert run(path, clock, [("stage 1", 1)]) == [Progress("stage 1")]
