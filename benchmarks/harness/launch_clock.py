"""Times calls with the host's launch time."""

import torch

from decodescope.variants.machine.clock import WARM_UP_CALLS, Call, DeviceClock, timing_event


class LaunchClock(DeviceClock):
    """A clock that also times calls as the host launches them, one by one."""

    def mean_ns(self, call: Call, calls: int) -> float:
        """The mean time of a call, from the start of the first to the end of the last.

        Starts from an idle device after a warm-up, so that the host's launch time counts.
        """
        for _ in range(WARM_UP_CALLS):
            call()
        torch.cuda.synchronize()
        first, last = timing_event(), timing_event()
        first.record()
        for _ in range(calls):
            call()
        last.record()
        last.synchronize()
        total_ns: float = first.elapsed_time(last) * 1e6
        return total_ns / calls
