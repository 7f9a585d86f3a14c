"""Names of CPU designs."""

from __future__ import annotations

import platform

import pytest
from tests.compute_node import FLAGS

from sonde.hostfs import HostFS
from sonde.jobs.facts import microarchitecture
from sonde.jobs.facts.view import View, fields


@pytest.mark.parametrize(
    ("vendor", "family", "model", "stepping", "name"),
    [
        ("GenuineIntel", 6, 45, 7, "sandybridge"),
        ("GenuineIntel", 6, 63, 2, "haswell"),
        ("GenuineIntel", 6, 79, 1, "broadwell"),
        ("GenuineIntel", 6, 85, 4, "skylake_avx512"),
        ("GenuineIntel", 6, 85, 7, "cascadelake"),
        ("GenuineIntel", 6, 85, 11, "cooperlake"),
        ("GenuineIntel", 6, 106, 6, "icelake"),
        ("GenuineIntel", 6, 143, 8, "sapphirerapids"),
        ("GenuineIntel", 6, 1, 1, None),
        ("AuthenticAMD", 23, 1, 2, "zen"),
        ("AuthenticAMD", 23, 49, 0, "zen2"),
        ("AuthenticAMD", 25, 1, 1, "zen3"),
        ("AuthenticAMD", 25, 17, 1, "zen4"),
        ("AuthenticAMD", 25, 97, 2, "zen4"),
        ("AuthenticAMD", 26, 2, 1, "zen5"),
        ("AuthenticAMD", 21, 2, 1, None),
    ],
)
def test_family_and_model_name_the_design(
    vendor: str, family: int, model: int, stepping: int, name: str | None
) -> None:
    info = {"vendor_id": vendor, "cpu family": str(family), "model": str(model), "stepping": str(stepping)}

    assert microarchitecture.named(info) == name


def test_arm_is_named_by_implementer_and_part() -> None:
    assert microarchitecture.named({"CPU implementer": "0x41", "CPU part": "0xd40"}) == "neoverse_v1"
    assert microarchitecture.named({"CPU implementer": "0x41", "CPU part": "nonsense"}) is None
    assert microarchitecture.named({}) is None


def test_a_level_needs_every_feature_of_those_below() -> None:
    features = set(FLAGS.split())

    assert microarchitecture.level(features) == "x86-64-v4"
    assert microarchitecture.level(features - {"avx512vl"}) == "x86-64-v3"
    assert microarchitecture.level(features - {"popcnt"}) == "x86-64"
    assert microarchitecture.level(features - {"lm"}) is None


@pytest.mark.skipif(platform.machine() != "x86_64", reason="the rule under test is that of x86")
def test_the_target_is_what_archspec_says_of_this_machine() -> None:
    from archspec.cpu import host

    info = fields(View(HostFS()).beginning("proc/cpuinfo", 16384).partition("\n\n")[0])

    assert microarchitecture.target(info, set(info["flags"].split())) == host().name
