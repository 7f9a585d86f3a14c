"""/proc/interrupts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.collectors.interrupts import InterruptsCollector, InterruptsConfig, labels_of, parse_cpus
from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.model import Reading, Value

METAL = (Path(__file__).parents[2] / "fixtures/hosts/metal/proc/interrupts").read_bytes()
TLB = ("TLB", "TLB shootdowns", "")


def by_series(reading: Reading) -> dict[tuple[str, ...], Value]:
    return {(s.name, *labels): value for (s, labels), value in zip(reading.layout, reading.values, strict=True)}


def written(folder: Path, text: bytes) -> HostFS:
    (folder / "proc").mkdir(exist_ok=True, parents=True)
    (folder / "proc/interrupts").write_bytes(text)
    return HostFS(str(folder))


def test_each_line_is_counted_per_cpu(captured: Callable[[str], HostFS]) -> None:
    collector = InterruptsCollector(captured("metal"), InterruptsConfig())
    values = by_series(collector.collect())
    collector.close()

    name = "node_interrupts_total"
    assert [values[name, str(cpu), *TLB] for cpu in range(4)] == [31847, 32203, 30118, 29977]
    assert values[name, "2", "130", "IR-PCI-MSI", "524288-edge nvme0q0"] == 88123
    assert values[name, "1", "9", "IR-IO-APIC", "9-fasteoi acpi, gpio_intel"] == 4
    assert len(values) == 14 * 4
    assert not any(key[2] in ("ERR", "MIS") for key in values)


def test_lines_are_summed_over_the_cpus(captured: Callable[[str], HostFS]) -> None:
    collector = InterruptsCollector(captured("metal"), InterruptsConfig(per_cpu=False))
    values = by_series(collector.collect())
    collector.close()

    name = "sonde_interrupts_total"
    assert values[name, *TLB] == 31847 + 32203 + 30118 + 29977
    assert values[name, "130", "IR-PCI-MSI", "524288-edge nvme0q0"] == 88135
    assert values[name, "131", "IR-PCI-MSI", "524289-edge nvme0q1"] == 4294967295
    assert values[name, "MCE", "Machine check exceptions", ""] == 0
    assert values[name, "ERR", "", ""] == 7  # counted for the host
    assert len(values) == 16


def test_only_the_wanted_types_are_given(captured: Callable[[str], HostFS]) -> None:
    config = InterruptsConfig(per_cpu=False, types=("TLB", "RES", "140"))
    collector = InterruptsCollector(captured("metal"), config)
    values = by_series(collector.collect())
    collector.close()

    assert [key[1] for key in values] == ["140", "RES", "TLB"]


@pytest.mark.parametrize("per_cpu", [True, False])
def test_what_changes_is_read_again_and_the_layout_stays(scratch: Callable[[str], HostFS], per_cpu: bool) -> None:
    host = scratch("metal")
    collector = InterruptsCollector(host, InterruptsConfig(per_cpu=per_cpu))
    before = collector.collect()
    path = Path(host.path("proc/interrupts"))
    path.write_bytes(METAL.replace(b"     31847 ", b"     31850 ").replace(b"     88123 ", b"     88124 "))

    after = collector.collect()
    collector.close()

    changed = [new - old for old, new in zip(before.values, after.values, strict=True) if new != old]  # type: ignore[operator]
    assert changed == [1, 3]
    assert after.layout is before.layout


def test_a_count_that_starts_again_is_passed_on(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = InterruptsCollector(host, InterruptsConfig(per_cpu=False))
    collector.collect()
    Path(host.path("proc/interrupts")).write_bytes(METAL.replace(b"4294967295 ", b"         5 "))

    values = by_series(collector.collect())
    collector.close()

    assert values["sonde_interrupts_total", "131", "IR-PCI-MSI", "524289-edge nvme0q1"] == 5


def test_a_device_that_goes_takes_its_line_with_it(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = InterruptsCollector(host, InterruptsConfig())
    collector.collect()
    lines = METAL.splitlines(keepends=True)
    Path(host.path("proc/interrupts")).write_bytes(b"".join(line for line in lines if b"mlx5" not in line))

    values = by_series(collector.collect())
    collector.close()

    assert len(values) == 13 * 4


def test_a_device_that_joins_a_line_changes_its_label(scratch: Callable[[str], HostFS]) -> None:
    host = scratch("metal")
    collector = InterruptsCollector(host, InterruptsConfig())
    collector.collect()
    Path(host.path("proc/interrupts")).write_bytes(METAL.replace(b"rtc0", b"rtc0, hpet0"))

    values = by_series(collector.collect())
    collector.close()

    assert values["node_interrupts_total", "2", "8", "IR-IO-APIC", "8-edge rtc0, hpet0"] == 1


def test_a_line_that_becomes_another_is_noticed_among_unwanted_ones(tmp_path: Path) -> None:
    host = written(tmp_path, b"     CPU0\n 24:   1  IO-APIC 5-edge a\nTLB:   2  TLB shootdowns\n")
    collector = InterruptsCollector(host, InterruptsConfig(types=("TLB", "25")))
    collector.collect()
    written(tmp_path, b"     CPU0\n 25:   1  IO-APIC 5-edge a\nTLB:   2  TLB shootdowns\n")

    values = by_series(collector.collect())
    collector.close()

    assert [key[2] for key in values] == ["25", "TLB"]


def test_a_cpu_keeps_its_number_when_one_before_it_is_off_line(tmp_path: Path) -> None:
    host = written(tmp_path, b"           CPU0       CPU3\nLOC:         5          9   Local timer interrupts\n")
    collector = InterruptsCollector(host, InterruptsConfig())
    values = by_series(collector.collect())
    collector.close()

    assert {key[1]: value for key, value in values.items()} == {"0": 5, "3": 9}


def test_a_number_that_touches_the_colon_is_read(tmp_path: Path) -> None:
    """arm64 leaves no blank between `IPI0:` and a count of ten digits."""
    host = written(tmp_path, b"           CPU0       CPU1\nIPI0:4294967295 4294967294       Rescheduling interrupts\n")
    collector = InterruptsCollector(host, InterruptsConfig())
    values = list(collector.collect().values)
    collector.close()

    assert values == [4294967295, 4294967294]


@pytest.mark.parametrize(
    ("name", "words", "labels"),
    [
        (b" 24", [b"IO-APIC", b"5-edge", b"ACPI:Ged"], ("24", "IO-APIC", "5-edge ACPI:Ged")),
        (b"TLB", [b"TLB", b"shootdowns"], TLB),
        (b"ERR", [], ("ERR", "", "")),
        (b"7", [b"\xff"], ("7", "\\xff", "")),
    ],
)
def test_labels_are_taken_apart(name: bytes, words: list[bytes], labels: tuple[str, ...]) -> None:
    assert labels_of(name, words) == labels


@pytest.mark.parametrize("header", [b"", b"CPU0 CPU0", b"CPU0 X1", b"CPUx"])
def test_an_odd_header_is_a_parse_error(header: bytes) -> None:
    with pytest.raises(ParseError):
        parse_cpus(header)


def mutated(text: bytes) -> st.SearchStrategy[bytes]:
    odd = st.binary(max_size=8) | st.sampled_from([b"-1", b"nan", b"9" * 5000, b"\n", b" ", b":", b"CPU9", b" 0 "])
    return st.binary(max_size=100) | st.builds(
        lambda at, length, new: text[:at] + new + text[at + length :],
        st.integers(0, len(text)),
        st.integers(0, 30),
        odd,
    )


@settings(max_examples=200, deadline=None)
@given(text=mutated(METAL), per_cpu=st.booleans(), types=st.sampled_from([(), ("TLB", "24")]))
def test_any_text_gives_values_or_a_parse_error(
    tmp_path_factory: pytest.TempPathFactory, text: bytes, per_cpu: bool, types: tuple[str, ...]
) -> None:
    folder = tmp_path_factory.getbasetemp() / "interrupts"
    collector = InterruptsCollector(written(folder, METAL), InterruptsConfig(per_cpu, types))
    reading = collector.collect()
    written(folder, text)

    try:
        reading = collector.collect()
    except ParseError:
        pass
    collector.close()

    assert len(reading.values) == len(reading.layout)
    assert all(isinstance(value, int) for value in reading.values)
