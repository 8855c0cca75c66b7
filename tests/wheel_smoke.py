"""Run by `make wheel` in an environment with only the wheel and its base dependencies.

Every module of `analyzer` (except capture), `attach`, `tui` and `cli` (except the servers of the
extras `serve` and `mcp`) must import without torch. The kernels, the bundled model and the
recordings must be present, and the command must analyse a recording.
"""

import importlib
import importlib.util
import pkgutil
import subprocess
import sys
from pathlib import Path

import decodescope

NEED_EXTRAS = {
    "decodescope.analyzer.capture.profiler_session",
    "decodescope.cli.app_server",
    "decodescope.cli.browser_app",
    "decodescope.cli.browser_guard",
    "decodescope.cli.mcp.running_tools",
    "decodescope.cli.mcp.server",
    "decodescope.cli.mcp.tools",
}


_TRACE = b'{"traceEvents":[{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":2,"pid":0,"tid":7}]}'
_TREE = (
    b'[{"children":[{"children":[],"frame":{"name":"k"},"metrics":{"count":1,"device_id":"0",'
    b'"time (ns)":9}}],"frame":{"name":"ROOT"},"metrics":{}},{}]'
)


def _as_zstd(data: bytes) -> bytes:
    """A frame of one block of under 256 bytes, as it is (RFC 8878)."""
    block = (1 | len(data) << 3).to_bytes(3, "little") + data
    return b"\x28\xb5\x2f\xfd" + bytes((0x20, len(data))) + block


def modules_of(room: str) -> list[str]:
    """All modules below a room, found without importing them."""
    spec = importlib.util.find_spec(f"decodescope.{room}")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    walk = pkgutil.walk_packages(list(spec.submodule_search_locations), f"decodescope.{room}.")
    return [module.name for module in walk]


def main() -> None:
    assert "site-packages" in str(decodescope.__file__), decodescope.__file__
    for room in ("analyzer", "attach", "tui", "cli"):
        for name in modules_of(room):
            if name not in NEED_EXTRAS:
                importlib.import_module(name)
    heavy = {"torch", "triton", "transformers"} & set(sys.modules)
    assert not heavy, heavy
    assert importlib.util.find_spec("decodescope.kernels.ops.read_bandwidth") is not None
    importlib.import_module("decodescope.variants.registry")
    package = Path(decodescope.__file__).parent
    assert (package / "variants" / "tiny" / "model.safetensors").stat().st_size > 7_000_000
    recordings = sorted((package / "analyzer" / "recordings").glob("*.dsrec"))
    assert recordings, "no bundled recordings in the wheel"
    command = str(Path(sys.executable).with_name("decodescope"))
    subprocess.run([command, "--version"], check=True)
    subprocess.run([command, "analyze", str(recordings[0])], check=True)
    page = subprocess.run(
        [command, "analyze", str(recordings[0]), "--format", "html"],
        capture_output=True,
        check=True,
    )
    assert page.stdout.rstrip().endswith(b"</html>"), page.stdout[-200:]
    for trace in (_TRACE, _as_zstd(_TRACE), _TREE):
        subprocess.run([command, "analyze", "-"], input=trace, check=True)
    done = subprocess.run([command, "run"], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done
    assert "pip install '.[run]'" in done.stderr, done.stderr


if __name__ == "__main__":
    main()
