"""The recordings of real GPU runs that come with the package, and what a recording's head says."""

from collections import Counter
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from decodescope.analyzer.protocol.messages import Hello, State
from decodescope.analyzer.recordings.recording import read_recording

HEAD_FRAMES = 64


@dataclass(frozen=True, slots=True)
class RecordingHead:
    """The first greeting of a recording, and the variant that ran first, "" if the head does not
    say."""

    hello: Hello
    variant: str


def bundled_recordings() -> tuple[Path, ...]:
    """Their paths by name, those of the model with the most variants first; `fused+graph` comes
    before `fused+graph+int8`."""
    models = {path: path.stem.rpartition("-")[0] for path in Path(__file__).parent.glob("*.dsrec")}
    variants = Counter(models.values())
    return tuple(sorted(models, key=lambda path: (-variants[models[path]], path.stem)))


@cache
def bundled_heads() -> dict[Path, RecordingHead]:
    """The heads of the bundled recordings, by name."""
    heads = ((path, recording_head(path)) for path in bundled_recordings())
    return {path: head for path, head in heads if head is not None}


def bundled_variants(hello: Hello | None = None) -> dict[str, tuple[Path, Hello]]:
    """The bundled recording of each variant, with its greeting: of the model and the ranks that a
    bundled recording greets with `hello`, else of those of the first one."""
    heads = bundled_heads()
    greetings = [head.hello for head in heads.values()]
    run = hello if hello in greetings else next(iter(greetings), None)
    return {
        head.variant: (path, head.hello)
        for path, head in heads.items()
        if run is not None and (head.hello.model, head.hello.tp) == (run.model, run.tp)
    }


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
    return RecordingHead(hello, next(filter(None, states), ""))
