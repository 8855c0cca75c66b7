"""The training corpus of `tiny`: the sources of CPython's standard library.

Whole files are assigned to training or validation by their name. The licence of the sources is the
PSF License Agreement.
"""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from decodescope.analyzer.errors import InputError

END_OF_TEXT = "<|endoftext|>"
VOCAB_SIZE = 4096
VALIDATION_PER_MILLE = 40
EXCLUDED_PARTS = frozenset({"site-packages", "pydoc_data", "__pycache__"})

# A newline stays with the indentation after it, so one token gives the depth of the next line.
SPLIT_PATTERN = r"\n[ \t]*| ?[\p{L}_]+|\p{N}{1,3}| ?[^\s\p{L}\p{N}_]+|[ \t]+|\s+"


Sources = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Corpus:
    """Training and validation sources: (path relative to the library, text), sorted by path."""

    train: Sources
    validation: Sources
    sha256: str

    @property
    def size_bytes(self) -> int:
        """UTF-8 bytes of all sources."""
        return sum(len(text.encode()) for _, text in (*self.train, *self.validation))


def is_validation(relative_path: str) -> bool:
    """Whether a file is held out: its name's SHA-256, mod 1000, is below the validation share."""
    digest = hashlib.sha256(relative_path.encode()).digest()
    return int.from_bytes(digest[:4], "big") % 1000 < VALIDATION_PER_MILLE


def read_corpus(stdlib: Path) -> Corpus:
    """Read all UTF-8 Python sources below `stdlib`, split by file.

    Raises:
        InputError: there is no Python source below `stdlib`.
    """
    sources = tuple(_read_sources(stdlib, lambda name: True))
    train = tuple(source for source in sources if not is_validation(source[0]))
    validation = tuple(source for source in sources if is_validation(source[0]))
    if not train or not validation:
        raise _no_library(stdlib)
    return Corpus(train, validation, digest_of(sources))


def read_validation(stdlib: Path) -> Sources:
    """The held-out sources below `stdlib`, as `read_corpus` splits them; the others need not exist.

    Raises:
        InputError: there is none.
    """
    validation = tuple(_read_sources(stdlib, is_validation))
    if not validation:
        raise _no_library(stdlib)
    return validation


def digest_of(sources: Sources) -> str:
    """SHA-256 over the names and texts."""
    digest = hashlib.sha256()
    for name, text in sources:
        digest.update(f"{name}\0{text}\0".encode())
    return digest.hexdigest()


def _read_sources(stdlib: Path, wanted: Callable[[str], bool]) -> Iterator[tuple[str, str]]:
    for path in sorted(stdlib.rglob("*.py")):
        relative = path.relative_to(stdlib)
        if EXCLUDED_PARTS & set(relative.parts) or not wanted(relative.as_posix()):
            continue
        try:
            text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
        if text.strip():
            yield relative.as_posix(), text


def _no_library(stdlib: Path) -> InputError:
    return InputError(f"{stdlib}: contains no standard library; name its folder with --stdlib")


def train_tokenizer(corpus: Corpus) -> Tokenizer:
    """Byte-level BPE of `VOCAB_SIZE` tokens over the training files; `END_OF_TEXT` has id 0."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT_PATTERN), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator((text for _, text in corpus.train), trainer)
    return tokenizer
