"""Ten minutes under the limits of the shipped unit."""

from __future__ import annotations

import os

import pytest
from benchmarks import soak


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="the job of the measurement needs cgroups, and these need root")
def test_memory_does_not_grow_in_ten_minutes() -> None:
    (growth,) = soak.measure()

    assert growth["met"], growth
