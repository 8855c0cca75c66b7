"""`python tests/fuzz.py --cases N --seed S`: damaged input for every command, and no excuse.

Traces, exports, recordings, ranks, checkpoints, settings, option lines, environments, a browser's
messages and an agent's requests are mutated, and the command runs on them in forked processes. A
case fails on a traceback, an exit code other than 0, 1 (a gate), 2 or 3, more than 10 s (60 s for
`live`), 2 GiB or 64 MiB of output, a figure that cannot be, a control character, a file that it
should not have left, or another step time than the planted one.
`--case K` repeats one and keeps its files; `--record FILE --resume` goes on with an earlier run,
`--record FILE --again` repeats its failures.
"""

import os
import sys
from pathlib import Path

sys.path[0] = str(Path(__file__).resolve().parent.parent)
os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

from tests.fuzzing.command import main  # noqa: E402

if __name__ == "__main__":
    sys.exit(main())
