"""The training corpus of `tiny`: the sources of CPython's standard library.

Whole files are assigned to training or validation by their name. The licence of the sources is the
PSF License Agreement.
"""

import hashlib
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


@dataclass(frozen=True, slots=True)
class Corpus:
    """Training and validation sources: (path relative to the library, text), sorted by path."""

    train: tuple[tuple[str, str], ...]
    validation: tuple[tuple[str, str], ...]
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
    train: list[tuple[str, str]] = []
    validation: list[tuple[str, str]] = []
    digest = hashlib.sha256()
    for path in sorted(stdlib.rglob("*.py")):
        relative = path.relative_to(stdlib)
        if EXCLUDED_PARTS & set(relative.parts):
            continue
        try:
            text = path.read_text(encoding="utf-8").replace("\r\n", "\n")
        except UnicodeDecodeError:
            continue
        if not text.strip():
            continue
        name = relative.as_posix()
        digest.update(f"{name}\0{text}\0".encode())
        (validation if is_validation(name) else train).append((name, text))
    if not train or not validation:
        raise InputError(f"{stdlib}: contains no standard library; name its folder with --stdlib")
    return Corpus(tuple(train), tuple(validation), digest.hexdigest())


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
