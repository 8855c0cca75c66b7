"""The two files of a user: what the app remembers from one run to the next, as JSON, and the user's
keys, a TOML file of `action = "key"` or `action = ["key", "other"]`.
"""

import errno
import os
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import msgspec
from msgspec import Struct
from platformdirs import user_config_path, user_state_path
from textual.binding import Binding
from textual.keys import Keys

from decodescope.analyzer.errors import InputError
from decodescope.analyzer.io.files import read_regular_file, write_json
from decodescope.analyzer.protocol.messages import Settings

RECENT_FILES = 20
_MISSING = (errno.ENOENT, errno.ENOTDIR)


@dataclass(frozen=True, slots=True)
class Places:
    """The two files of a user: `state` is written by the app, `keymap` only by the user."""

    state: Path
    keymap: Path


def user_places() -> Places:
    return Places(
        user_state_path("decodescope") / "state.json",
        user_config_path("decodescope") / "keymap.toml",
    )


class Remembered(Struct, frozen=True, omit_defaults=True):
    """`recent` are absolute paths, the latest first; `settings` are those that a live run
    was changed to last, without the prompt."""

    theme: str | None = None
    recent: tuple[str, ...] = ()
    settings: Settings | None = None


class Memory:
    """Reads `path` once, and writes it at each change; None remembers nothing.

    A file that cannot be read is never overwritten, and what another version keeps in it stays.
    `problem` says in one line why nothing is
    remembered, "" if all is well. Methods may be called from any thread.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self.problem = ""
        self.remembered = Remembered()
        self._kept: dict[str, object] = {}
        if path is not None:
            self._read(path)

    def change(self, **fields: object) -> None:
        """Remember `fields` of `Remembered` from now on; what other apps wrote meanwhile stays."""
        self._update(lambda remembered: msgspec.structs.replace(remembered, **fields))

    def opened(self, paths: Sequence[Path]) -> None:
        """Put `paths` in front of the recent files; JSON has no name for one that is not UTF-8."""
        names = [os.path.abspath(path) for path in paths]
        names = [name for name in names if name == name.encode(errors="ignore").decode()]

        def update(remembered: Remembered) -> Remembered:
            recent = tuple(dict.fromkeys([*names, *remembered.recent]))[:RECENT_FILES]
            return msgspec.structs.replace(remembered, recent=recent)

        self._update(update)

    def _read(self, path: Path) -> None:
        try:
            data = read_regular_file(path)
            self.remembered = msgspec.json.decode(data, type=Remembered)
            self._kept = msgspec.json.decode(data, type=dict[str, object])
        except OSError as error:
            if error.errno not in _MISSING:
                self._refuse(path, error.strerror or str(error))
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            self._refuse(path, str(error))

    def _refuse(self, path: Path, reason: str) -> None:
        self.problem = f"{path}: cannot be read ({reason}); nothing is remembered until it is "
        self.problem += "repaired or deleted"

    def _update(self, update: Callable[[Remembered], Remembered]) -> None:
        with self._lock:
            if self._path is not None and not self.problem:
                self._read(self._path)
            before, self.remembered = self.remembered, update(self.remembered)
            if self._path is None or self.problem or before == self.remembered:
                return
            fields = ((name, getattr(self.remembered, name)) for name in before.__struct_fields__)
            self._kept |= {name: new for name, new in fields if new != getattr(before, name)}
            try:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                write_json(self._path, self._kept)
            except (OSError, InputError) as error:
                self.problem = f"nothing is remembered: {error}"


_MODIFIERS = ("ctrl+", "shift+", "alt+", "super+", "hyper+", "meta+")
# What a list of keys is written with.
_SEPARATORS = {",": "comma", " ": "space"}
_NAMED = frozenset(key.value for key in Keys)


def read_keymap(path: Path, list_actions: Callable[[], Mapping[str, str]]) -> dict[str, str]:
    """The keys of `path`, joined with commas, for each action that it names; {} if it is missing.

    `list_actions` gives all actions with their own keys, and is called only if there is a file:
    "app.quit" is `quit` in the table `[app]`, and "timeline.pan" belongs to one panel. A key of the
    app is not one of a panel as well, unless it was before.

    Raises:
        InputError: the file cannot be read, or names an unknown action or key, or one key twice;
            one line with all of it.
    """
    try:
        table = tomllib.loads(read_regular_file(path).decode())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise InputError(f"{path}: cannot be read ({reason}); the default keys apply") from None
    actions = list_actions()
    keymap: dict[str, str] = {}
    problems: list[str] = []
    for action, value in _flat(table):
        keys = [value] if isinstance(value, str) else value
        if action not in actions:
            problems.append(f"no action {action}")
        elif not isinstance(keys, list) or not keys or not all(map(_is_key, keys)):
            problems.append(f"{action} = {value!r} is no key")
        else:
            keymap[action] = ",".join(map(_full_name, keys))
    problems += _clashes(actions, {**actions, **keymap})
    if problems:
        raise InputError(f"{path}: {'; '.join(problems)}; the default keys apply")
    return keymap


def _flat(table: Mapping[str, object], group: str = "") -> Iterator[tuple[str, object]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{group}{name}.")
        else:
            yield f"{group}{name}", value


def _is_key(key: object) -> bool:
    if not isinstance(key, str) or not key or not key.isprintable():
        return False
    while len(key) > 1 and key.startswith(_MODIFIERS):
        key = key.partition("+")[2]
    return len(key) == 1 or key in _NAMED or key in _character_names()


@cache
def _character_names() -> frozenset[str]:
    return frozenset(_full_name(chr(code)) for code in range(ord(" "), 0x7F))


def _full_name(key: str) -> str:
    if key in _SEPARATORS:
        return _SEPARATORS[key]
    return next(iter(Binding.make_bindings([Binding(key, "")]))).key


def _clashes(before: Mapping[str, str], after: Mapping[str, str]) -> Iterator[str]:
    holders: dict[str, list[str]] = {}
    for action, keys in after.items():
        for key in keys.split(","):
            holders.setdefault(key, []).append(action)
    for key, holding in holders.items():
        for number, action in enumerate(holding):
            for other in holding[:number]:
                shared = key in before[action].split(",") and key in before[other].split(",")
                groups = {action.partition(".")[0], other.partition(".")[0]}
                # Both can be asked for at the same moment.
                meet = len(groups) == 1 or "app" in groups
                if meet and not shared:
                    yield f"{key} is the key of both {other} and {action}"
