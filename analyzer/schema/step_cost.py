"""The bytes and FLOPs of a step, the peaks of its device, and the bandwidth that it reached."""

from typing import Literal

from msgspec import Struct


class StepCost(Struct, frozen=True):
    """The work of the step that stands for a trace, and the peaks of its device.

    `source` says who knows the bytes and FLOPs: the "capture" (decodescope's own runs) or the
    "model" that the user named. `bytes_per_step` are the weights and the KV cache that it reads at
    least, `flops_per_step` counts a multiply-add as two. `measured_peak_bytes_per_s` is the read
    bandwidth measured in that run; without it, `datasheet_peak_bytes_per_s` decides, which
    `peak_source` names ("--peak" for one that the user gave). What is unknown is null.
    """

    source: Literal["capture", "model"]
    model: str
    dtype: str
    bytes_per_step: int
    flops_per_step: int | None
    batch: int | None = None
    kv_tokens: int | None = None
    query_tokens: int | None = None
    weights: str | None = None
    tensor_parallel: int = 1
    device_name: str = ""
    measured_peak_bytes_per_s: float | None = None
    datasheet_peak_bytes_per_s: float | None = None
    peak_flops_per_s: float | None = None
    peak_source: str | None = None

    @property
    def peak_bytes_per_s(self) -> float | None:
        """The measured peak, else the datasheet's or the user's."""
        return self.measured_peak_bytes_per_s or self.datasheet_peak_bytes_per_s


class Bandwidth(Struct, frozen=True):
    """MBU = achieved / measured peak (datasheet peak if none was measured; `mbu_of` says which).

    `achieved_bytes_per_s` = bytes a step must read / median unprofiled step time.
    """

    achieved_bytes_per_s: float
    measured_peak_bytes_per_s: float | None
    datasheet_peak_bytes_per_s: float | None
    mbu: float | None
    mbu_of: Literal["measured", "datasheet"] | None
