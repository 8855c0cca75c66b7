"""What the GPU's clock did while a claim was measured."""

from benchmarks.claims.report import Clocks
from decodescope.analyzer.machine.meters import GpuMeters
from decodescope.analyzer.protocol.messages import Meters


class ClockWatch:
    """Reads the meters at each `look`; `seen` summarises the looks since the last `seen`."""

    def __init__(self, meters: GpuMeters | None) -> None:
        self._meters = meters
        self._read: list[Meters] = []

    def look(self) -> None:
        """Read the meters once, if there are any."""
        read = None if self._meters is None else self._meters.read()
        if read is not None:
            self._read.append(read)

    def seen(self) -> Clocks:
        """The lowest and highest clock, the most power, and every reason to throttle."""
        read, self._read = self._read, []
        clocks = [one.sm_clock_mhz for one in read if one.sm_clock_mhz is not None]
        power = [one.power_w for one in read if one.power_w is not None]
        reasons = dict.fromkeys(reason for one in read for reason in one.throttle)
        return Clocks(
            min(clocks, default=None),
            max(clocks, default=None),
            max(power, default=None),
            tuple(reasons),
        )
