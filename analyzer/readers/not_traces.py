"""Names at once what people take for a trace and what holds none, from its first bytes."""

import re

from decodescope.analyzer.errors import TraceError
from decodescope.analyzer.readers.byte_source import ByteSource
from decodescope.analyzer.trace import Trace

_PIPE_IT = "unpack it: {} FILE | decodescope analyze -"
_NOT_TRACES = tuple(
    (re.compile(pattern, re.DOTALL), what, remedy)
    for pattern, what, remedy in (
        (
            rb'\s*\{\s*"schema"\s*:\s*"[^"]*".*"nodes"\s*:\s*\[',
            "a PyTorch execution trace (Chakra), which has operators but no times and no GPU ops",
            "record one with torch.profiler.profile and export_chrome_trace",
        ),
        (
            rb'\s*\{\s*"schema_version"\s*:\s*\d+\s*,\s*"(?:source|model|runs|base|ranks)"\s*:',
            "a result of decodescope, not a trace",
            "name the trace that it was made from",
        ),
        (
            # Field 1 of a message, in bytes that no text has.
            rb"\n(?=[^\x00-\x08\x0e-\x1f]{0,64}[\x00-\x08\x0e-\x1f])",
            "a Perfetto trace (protobuf)",
            "record JSON instead (rocprofv3 --output-format json)",
        ),
        (rb"\x28\xb5\x2f\xfd", "compressed with zstd", _PIPE_IT.format("zstd -dc")),
        (rb"\xfd7zXZ\x00", "compressed with xz", _PIPE_IT.format("xz -dc")),
        (rb"BZh[1-9]", "compressed with bzip2", _PIPE_IT.format("bzip2 -dc")),
        (rb"PK\x03\x04", "a zip archive", _PIPE_IT.format("unzip -p")),
        (rb".{257}ustar", "a tar archive", _PIPE_IT.format("tar -xOf")),
        (rb"\xff\xfe|\xfe\xff", "text in UTF-16", "convert it: iconv -f UTF-16 -t UTF-8 FILE"),
        (rb"\x80[\x02-\x05]", "a pickle, as of a memory snapshot", "record a profiler trace"),
    )
)


def is_no_trace(source: ByteSource) -> bool:
    """Whether the bytes begin as something else does that is known here."""
    return any(pattern.match(source.head) for pattern, _, _ in _NOT_TRACES)


def refuse(source: ByteSource) -> Trace:
    """Raise `TraceError`: what it is, and what to do instead."""
    what, remedy = next(row[1:] for row in _NOT_TRACES if row[0].match(source.head))
    raise TraceError(f"{source.path}: {what}; {remedy}")
