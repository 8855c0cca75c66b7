"""Runs the tests marked `gpu` or `any_device`; records them in benchmarks/results/gpu-tests.json.

Further arguments go to pytest. Exits with pytest's code; records nothing if no test ran.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import rich_click as click

from benchmarks.harness.records import RESULTS, ROOT, write_record

RESULT = RESULTS / "gpu-tests.json"


def outcome(case: ElementTree.Element) -> str:
    """passed, failed or skipped, of one JUnit test case."""
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


@click.command("gpu-tests", context_settings={"ignore_unknown_options": True})
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Run the tests that need or can use a CUDA GPU, and record them; ends as pytest does.

    ARGUMENTS are those of pytest.
    """
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        pytest = ["-m", "pytest", "-m", "gpu or any_device", f"--junitxml={junit}", *arguments]
        code = subprocess.run([sys.executable, *pytest], cwd=ROOT, check=False).returncode
        if not junit.is_file():
            return code
        cases = list(ElementTree.parse(junit).iter("testcase"))
    tests = {f"{case.get('classname')}::{case.get('name')}": outcome(case) for case in cases}
    ran = [result for result in tests.values() if result != "skipped"]
    if ran:
        record = {
            "passed": ran.count("passed"),
            "failed": ran.count("failed"),
            "skipped": len(tests) - len(ran),
            "tests": dict(sorted(tests.items())),
        }
        write_record(RESULT, record, "make test-gpu")
        sys.stderr.write(f"recorded in {RESULT.relative_to(ROOT)}\n")
    return code
