"""The recordings of real GPU runs that come with the package, and what a recording's head says."""

from dataclasses import dataclass
from pathlib import Path

from decodescope.analyzer.protocol.messages import Hello, State
from decodescope.analyzer.recordings.recording import read_recording

HEAD_FRAMES = 64


@dataclass(frozen=True, slots=True)
class RecordingHead:
    """The head of a recording, for a list of files. `variant` is the one that ran first, "" if the
    head does not say; `date` is when the run began, in ISO 8601, or ""."""

    path: Path
    size_bytes: int
    model: str
    variant: str
    device_name: str
    dtype: str
    batch: int
    context: int
    date: str


def bundled_recordings() -> tuple[Path, ...]:
    """Their paths, by name: `fused+graph` comes before `fused+graph+int8`."""
    paths = Path(__file__).parent.glob("*.dsrec")
    return tuple(sorted(paths, key=lambda path: path.stem))


def recording_head(path: Path) -> RecordingHead | None:
    """The head in the first `HEAD_FRAMES` frames; None if they hold no greeting.

    Raises:
        TraceError: the file cannot be read, is not a recording, or has another version.
    """
    recording = read_recording(path, HEAD_FRAMES)
    messages = [frame.message for frame in recording.events]
    hello = next((message for message in messages if isinstance(message, Hello)), None)
    if hello is None:
        return None
    states = (message.variant for message in messages if isinstance(message, State))
    return RecordingHead(
        path=path,
        size_bytes=path.stat().st_size,
        model=hello.model,
        variant=next(filter(None, states), ""),
        device_name=hello.device_name,
        dtype=hello.dtype,
        batch=hello.batch,
        context=hello.context,
        date=str(hello.environment.get("date") or ""),
    )
