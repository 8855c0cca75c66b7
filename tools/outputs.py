"""Every output of decodescope over a set of traces and recordings, and how two sets differ.

    python -m tools.outputs record FOLDER FILE...   runs each command on each file
    python -m tools.outputs compare OLD NEW [--terms TERMS.json]

`record` runs the package that Python finds, so PYTHONPATH chooses the revision. `compare` reads
both folders as words and numbers. It prints which words were replaced by which, over all files, and
every number that only one side has. TERMS.json maps old words to new ones; it is applied to OLD.
"""

import argparse
import gzip
import json
import os
import re
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

PAGES = ("step", "timeline", "kernels", "gaps", "ranges", "limit", "ab", "files", "log")
_WORD = re.compile(r"[\w%µ·./+-]+")
_NUMBER = re.compile(r"[-+x\u00d7~]?\d[\d,.]*")
_MARKUP = re.compile(r"<[^>]*>")


def commands(source: Path, folder: Path) -> dict[str, list[str]]:
    """The commands to run on one file, by the name of the output."""
    file = str(source)
    rows = {
        f"{by}.csv": ["analyze", "--format", "csv", "--by", by, file]
        for by in ("kernel", "range", "gap")
    }
    tables = {
        f"{name}-{width}.txt": ["analyze", *options, file]
        for name, options in (("overview", ()), ("all", ("--show", "all")))
        for width in (80, 140)
    }
    pages = {
        f"page-{page}-{size}.txt": ["open", "--once", "--page", page, "--size", size, file]
        for page in PAGES
        for size in ("80x24", "140x50")
    }
    return {
        "report.json": ["analyze", "--json", file],
        "report.html": ["analyze", "--format", "html", file],
        "chrome.json.gz": ["export", "--to", "chrome", "-o", str(folder / "chrome.json.gz"), file],
        "diff.json": ["diff", "--json", file, file],
        "diff.txt": ["diff", file, file],
        "diff-out": ["diff", "--out", str(folder / "diff-out"), file, file],
        **rows,
        **tables,
        **pages,
    }


def record(folder: Path, sources: list[Path]) -> None:
    """Write every output of every source below `folder`, one folder a source."""
    from decodescope.cli import main as entry

    for source in sources:
        below = folder / source.name
        below.mkdir(parents=True, exist_ok=True)
        for name, arguments in commands(source, below).items():
            width = name.partition("-")[2].removesuffix(".txt") if name.endswith(".txt") else ""
            _run(entry.main, arguments, below / name, width if width.isdigit() else "140")
        sys.stderr.write(f"{source.name}\n")


def _run(main: object, arguments: list[str], output: Path, columns: str) -> None:
    """Run one command in a fork, its output in a file unless the command writes it itself."""
    writes_itself = "-o" in arguments or "--out" in arguments
    target = output.with_name(output.name + ".log") if writes_itself else output
    process = os.fork()
    if process == 0:
        os.environ |= {"COLUMNS": columns, "NO_COLOR": "1", "LINES": "50"}
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        sys.argv = ["decodescope", *arguments]
        main()  # type: ignore[operator]
    _, status = os.waitpid(process, 0)
    if code := os.waitstatus_to_exitcode(status):
        with target.open("a") as log:
            log.write(f"exit code {code}\n")


def compare(old: Path, new: Path, terms: dict[str, str]) -> int:
    """Print the differences of two folders; the number of files that differ in a number."""
    names = {
        path.relative_to(side) for side in (old, new) for path in side.rglob("*") if path.is_file()
    }
    replaced: Counter[str] = Counter()
    added: Counter[str] = Counter()
    differing = 0
    for name in sorted(names):
        if not (old / name).exists() or not (new / name).exists():
            sys.stdout.write(f"only in {'NEW' if (new / name).exists() else 'OLD'}: {name}\n")
            continue
        gone, come = _differences(old / name, new / name, terms)
        replaced.update(word for word in gone if not _NUMBER.fullmatch(word))
        added.update(word for word in come if not _NUMBER.fullmatch(word))
        numbers = [
            " ".join(word for word in side.elements() if _NUMBER.fullmatch(word))
            for side in (gone, come)
        ]
        if any(numbers):
            differing += 1
            sys.stdout.write(f"{name}\n  - {numbers[0][:300]}\n  + {numbers[1][:300]}\n")
    sys.stdout.write(f"\n{len(names)} files, {differing} with other numbers\nwords gone:\n")
    for counts, title in ((replaced, None), (added, "words added:")):
        sys.stdout.write(f"{title}\n" if title else "")
        for word, count in counts.most_common():
            sys.stdout.write(f"  {count:>6} {word}\n")
    return differing


def _differences(old: Path, new: Path, terms: dict[str, str]) -> tuple[Counter[str], Counter[str]]:
    if old.read_bytes() == new.read_bytes():
        return Counter(), Counter()
    before = Counter(terms.get(word, word) for word in _words(old))
    after = Counter(_words(new))
    return before - after, after - before


def _words(path: Path) -> Iterator[str]:
    data = path.read_bytes()
    with suppress(gzip.BadGzipFile):
        data = gzip.decompress(data)
    text = data.decode(errors="replace")
    if path.name.endswith((".json", ".json.gz")) and text.lstrip().startswith("{"):
        yield from _json_words("", json.loads(text))
        return
    if path.suffix == ".html":
        text = _MARKUP.sub(" ", text)
    yield from _WORD.findall(text)


def _json_words(key: str, value: object) -> Iterator[str]:
    """The keys, and each figure with its key: `key=figure`."""
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _json_words(name, inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _json_words(key, inner)
    elif isinstance(value, str):
        yield key
        yield from _WORD.findall(value)
    else:
        yield key
        yield f"{value}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("do", choices=("record", "compare"))
    parser.add_argument("folder", type=Path)
    parser.add_argument("paths", type=Path, nargs="+")
    parser.add_argument("--terms", type=Path)
    arguments = parser.parse_args()
    if arguments.do == "record":
        record(arguments.folder, arguments.paths)
        return
    terms = json.loads(arguments.terms.read_text()) if arguments.terms else {}
    sys.exit(bool(compare(arguments.folder, arguments.paths[0], terms)))


if __name__ == "__main__":
    main()
