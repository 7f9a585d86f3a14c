"""Ten minutes under the limits of the shipped unit."""

from __future__ import annotations

import os

import pytest
from benchmarks import soak


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the job of the measurement needs cgroups, and these need root")
def test_memory_does_not_leak_in_ten_minutes() -> None:
    (growth,) = soak.measure()

    # The bar of 0.5 MB is the benchmark's, on a quiet machine. Here a leak must not pass: connections that were not
    # freed cost 6 MB, layouts kept twice another 4.
    assert float(str(growth["value"])) < 1.5, growth
