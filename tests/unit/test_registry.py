"""Plug-ins by name: imported when asked for, and forgotten when they have nothing to do."""

from __future__ import annotations

import subprocess
import sys

import pytest

from sonde.errors import ConfigError
from sonde.registry import COLLECTORS, OFF_BY_DEFAULT, load

# In a process of its own: the other tests have the module's classes in their hands.
_FORGETTING = """
import sys
from sonde.registry import COLLECTORS, forget, load
before = load(COLLECTORS, "hwmon")
forget(COLLECTORS, "hwmon")
import sonde.collectors
gone = "sonde.collectors.hwmon" not in sys.modules and not hasattr(sonde.collectors, "hwmon")
print(gone, load(COLLECTORS, "hwmon") is before, load(COLLECTORS, "hwmon").__name__)
"""


def test_a_forgotten_plug_in_can_be_loaded_again() -> None:
    done = subprocess.run([sys.executable, "-c", _FORGETTING], capture_output=True, text=True, timeout=60)

    assert done.stdout.split() == ["True", "False", "HwmonCollector"], done.stderr


def test_an_unknown_plug_in_is_refused_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="no plug-in is called 'cpuu'; did you mean 'cpu'"):
        load(COLLECTORS, "cpuu")


def test_what_is_off_by_default_is_registered() -> None:
    assert set(COLLECTORS) >= OFF_BY_DEFAULT
