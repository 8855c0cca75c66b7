"""Page 6 where room is short: roles come before panels that know little."""

from itertools import takewhile
from pathlib import Path

from decodescope.analyzer.modelling.config import read_model_config
from decodescope.analyzer.modelling.weights import model_weights
from decodescope.analyzer.names.kinds import ROLES
from decodescope.analyzer.reports.user_facts import Given, GivenModel
from decodescope.tui.app import DecodescopeApp
from decodescope.tui.model.sources import TraceSource
from tests.helpers.app import recorded
from tests.helpers.app.recorded import press
from tests.helpers.foreign.layered import layered
from tests.helpers.kineto_events import document
from tests.helpers.scripted import StillClock, settle, text_of


async def limits(path: Path, size: tuple[int, int], given: Given | None = None) -> tuple[str, str]:
    """The page of limits as it is shown, and as it is copied."""
    app = DecodescopeApp(TraceSource((path,), given), clock=StillClock())
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await press(pilot, "6")
        text = text_of(app)
        await press(pilot, "y")
        return text, app.clipboard


def roles_in(text: str) -> list[str]:
    """The roles in the rows of the panel of roles."""
    lines = text.partition("Busy time of a step by role")[2].splitlines()[2:]
    names = [line.split()[1] for line in lines if len(line.split()) > 1]
    return list(takewhile(ROLES.__contains__, names))


async def test_roles_come_before_panels_that_say_nothing(tmp_path: Path) -> None:
    inferred = tmp_path / "layered.json"
    inferred.write_bytes(document(layered(steps=3)))
    text, copied = await limits(inferred, (80, 24))
    assert roles_in(text) == [
        "norm", "qkv", "rope", "kv_write", "attention", "o",
    ]  # fmt: skip
    assert "Bandwidth:" not in text
    assert "Roofline" not in text
    assert "gate_up\t4\t" in copied
    text, _ = await limits(inferred, (80, 48))
    assert len(roles_in(text)) >= 6
    assert "this trace does not say how many bytes a step reads" in text
    assert "this trace says of no kernel how many bytes and FLOPs it has" in text


async def test_a_vllm_step_has_its_roles_on_a_small_page_of_limits(foreign_traces: Path) -> None:
    path = foreign_traces / "mi300x_vllm_decode_graph.json.gz"
    longest = ["experts", "router", "attention", "qkv", "o", "copy"]
    text, _ = await limits(path, (80, 24))
    assert roles_in(text) == longest
    shape = read_model_config("gpt-oss-20b")
    given = Given(model=GivenModel(shape, model_weights(shape, None)))
    # Bandwidths are known then, and stay; the roofline knows the step and one kernel of many.
    text, _ = await limits(path, (80, 24), given)
    assert roles_in(text) == longest[:4]
    assert " 26.7 " in text
    assert "?)" not in text
    assert " in the window " in text
    assert "Roofline" not in text
    assert "Roofline" in (await limits(path, (80, 48), given))[0]


async def test_the_roofline_of_a_run_of_ours_stays_before_roles(tmp_path: Path) -> None:
    text, _ = await limits(recorded.write_window(tmp_path, "fused+graph"), (80, 24))
    assert "Roofline" in text
    assert roles_in(text) == []
