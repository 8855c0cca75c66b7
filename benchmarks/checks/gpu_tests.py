"""Runs the tests marked `gpu` or `any_device`; records them in benchmarks/results/gpu-tests.json.

Further arguments go to pytest. Exits with pytest's code; records nothing if no test ran.
"""

import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

from benchmarks.harness.common import RESULTS, ROOT, write_record

RESULT = RESULTS / "gpu-tests.json"


def outcome(case: ElementTree.Element) -> str:
    """passed, failed or skipped, of one JUnit test case."""
    kinds = {child.tag for child in case}
    if kinds & {"failure", "error"}:
        return "failed"
    return "skipped" if "skipped" in kinds else "passed"


def main() -> int:
    """Run, record, and return pytest's exit code."""
    with tempfile.TemporaryDirectory() as folder:
        junit = Path(folder) / "junit.xml"
        command = ["-m", "pytest", "-m", "gpu or any_device", f"--junitxml={junit}", *sys.argv[1:]]
        code = subprocess.run([sys.executable, *command], cwd=ROOT, check=False).returncode
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


if __name__ == "__main__":
    sys.exit(main())
