"""What the tests of sections, of the glance and of the plots share."""

import pytest

from benchmarks.claims.report import ClaimsReport
from tests.benchmarks.report.claim_reports import example_reports


@pytest.fixture
def reports() -> dict[str, ClaimsReport]:
    return example_reports()
