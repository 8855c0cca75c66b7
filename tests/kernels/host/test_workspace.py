import pytest
import torch

from decodescope.kernels.host.workspace import MAX_BATCH, NO_KEY, new_workspace


def test_a_new_one_is_ready(device: str) -> None:
    workspace = new_workspace(5, 3, device)
    assert workspace.partials.shape == (5,)
    assert workspace.counters.tolist() == [0, 0, 0]
    assert workspace.keys.tolist() == [NO_KEY] * MAX_BATCH
    assert {tensor.device.type for tensor in (workspace.partials, workspace.keys)} == {device}
    workspace.check(5, 3, workspace.counters.device)


def test_no_key_is_below_every_key() -> None:
    assert torch.iinfo(torch.int64).min == NO_KEY


@pytest.mark.parametrize(
    ("partials", "counters", "device", "complaint"),
    [
        (6, 3, "cpu", "5 floats and 3 counters: this launch needs 6 and 3"),
        (5, 4, "cpu", "needs 5 and 4"),
        (5, 3, "meta", "workspace on cpu: must be on meta"),
    ],
)
def test_check_refuses_too_small_and_other_devices(
    partials: int, counters: int, device: str, complaint: str
) -> None:
    with pytest.raises(ValueError, match=complaint):
        new_workspace(5, 3, "cpu").check(partials, counters, torch.device(device))
