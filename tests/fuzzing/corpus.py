"""Cases that failed once, made small: they run before all others."""

import ast
import hashlib
from dataclasses import asdict
from functools import cache
from pathlib import Path

from tests.fuzzing.case import Case

_FOLDER = Path(__file__).with_name("corpus")


@cache
def corpus() -> tuple[Case, ...]:
    """The kept cases, by the names of their files."""
    files = sorted(_FOLDER.glob("*.txt"))
    return tuple(Case(**ast.literal_eval(file.read_text())) for file in files)


def keep(case: Case) -> Path:
    """Write a case to the corpus, as Python's literals; the file's path."""
    text = ascii(asdict(case)) + "\n"
    _FOLDER.mkdir(exist_ok=True)
    path = _FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:12]}.txt"
    path.write_text(text)
    return path
