"""Which processor a /proc/cpuinfo is of, and which file of events that means."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.counters import catalogue
from sonde.counters.microarchitecture import Cpu, parse_cpuinfo
from sonde.errors import ParseError

TEXTS = Path(__file__).parents[2] / "fixtures/cpuinfo"


@pytest.mark.parametrize("name", catalogue.names())
def test_each_microarchitecture_is_found_by_the_cpuinfo_of_one(name: str) -> None:
    text = (TEXTS / f"{name}.txt").read_text()

    assert catalogue.find(parse_cpuinfo(text)) == name


@pytest.mark.parametrize(
    ("cpu", "name"),
    [
        (Cpu("intel", 6, 0xCF, 2), "sapphire_rapids"),  # Emerald Rapids
        (Cpu("intel", 6, 0x55, 11), "cascade_lake"),  # Cooper Lake has the same model
        (Cpu("amd", 0x17, 0x08, 2), "zen1"),
        (Cpu("amd", 0x17, 0x71, 0), "zen2"),
        (Cpu("amd", 0x19, 0x21, 0), "zen3"),
        (Cpu("amd", 0x19, 0x61, 2), "zen4"),
        (Cpu("amd", 0x1A, 0x44, 0), "zen5"),
        (Cpu("amd", 0x15, 0x02, 0), "generic"),
        (Cpu("hygon", 0x18, 0x01, 1), "generic"),
        (Cpu("arm", implementer=0x46, part=0x001), "generic"),  # A64FX
        (Cpu("arm", implementer=0x42, part=0xD0C), "generic"),  # the part alone says nothing
        (Cpu("intel", 5, 0x55, 4), "generic"),
        (Cpu(""), "generic"),
    ],
)
def test_relatives_and_strangers(cpu: Cpu, name: str) -> None:
    assert catalogue.find(cpu) == name


def test_a_processor_that_tells_neither_is_no_error() -> None:
    assert parse_cpuinfo("processor\t: 0\ncpu\t\t: POWER9\nrevision\t: 2.2\n\n") == Cpu("")


def test_a_family_that_is_no_number_is_refused() -> None:
    with pytest.raises(ParseError):
        parse_cpuinfo("vendor_id : GenuineIntel\ncpu family : six\nmodel : 1\nstepping : 1\n")


@given(st.text(max_size=200) | st.sampled_from([path.read_text()[:400] for path in TEXTS.glob("*.txt")]), st.data())
@settings(max_examples=150, deadline=None)
def test_any_text_is_a_processor_or_a_parse_error(text: str, data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(text)))
    mutated = text[:at] + data.draw(st.text(max_size=3)) + text[at + 1 :]

    try:
        assert isinstance(parse_cpuinfo(mutated), Cpu)
    except ParseError:
        pass
