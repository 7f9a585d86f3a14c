"""Memory modules, from a table laid out as the SMBIOS specification (section 7.18) has it."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sonde.errors import ParseError
from sonde.hostfs import HostFS
from sonde.jobs.facts import dimms
from sonde.jobs.facts.view import View


def structure(kind: int, fields: bytes, *texts: str) -> bytes:
    body = struct.pack("<BBH", kind, len(fields) + 4, 0x1100) + fields
    return body + (b"".join(text.encode() + b"\0" for text in texts) or b"\0") + b"\0"


def module(size: int, *, extended: int = 0, speed: int = 4800, kind: int = 0x22) -> bytes:
    fields = bytearray(0x22 - 4)
    struct.pack_into("<H", fields, 0x0C - 4, size)
    fields[0x12 - 4] = kind
    struct.pack_into("<H", fields, 0x15 - 4, 5600)
    fields[0x17 - 4], fields[0x18 - 4], fields[0x1A - 4] = 1, 2, 3
    struct.pack_into("<I", fields, 0x1C - 4, extended)
    struct.pack_into("<H", fields, 0x20 - 4, speed)
    return structure(17, bytes(fields), "Samsung", "SERIAL9", "M321R8GA0BB0-CQKZJ  ")


TABLE = (
    structure(0, b"\1\2\3", "Dell")
    + module(32768 - 1, extended=65536) * 2
    + module(0)
    + module(16384, speed=0)
    + structure(127, b"")
)


def test_modules_are_counted_by_kind_and_empty_slots_are_not(tmp_path: Path) -> None:
    (tmp_path / "sys/firmware/dmi/tables").mkdir(parents=True)
    (tmp_path / "sys/firmware/dmi/tables/DMI").write_bytes(TABLE)
    common = {"type": "DDR5", "maker": "Samsung", "part": "M321R8GA0BB0-CQKZJ"}

    assert dimms.read(View(HostFS(str(tmp_path)))) == [
        {"count": 2, "size_bytes": 64 * 2**30, "transfers_per_second": 4_800_000_000, **common},
        {"count": 1, "size_bytes": 16 * 2**30, "transfers_per_second": 5_600_000_000, **common},
    ]


def test_a_size_in_kilobytes_has_its_top_bit_set() -> None:
    assert dimms.parse_table(module(0x8000 | 512))[0]["size_bytes"] == 512 * 1024


def test_without_the_table_edac_tells(tmp_path: Path) -> None:
    for slot in ("dimm0", "dimm1"):
        folder = tmp_path / "sys/devices/system/edac/mc/mc0" / slot
        folder.mkdir(parents=True)
        (folder / "size").write_text("32768\n")
        (folder / "dimm_mem_type").write_text("Registered-DDR5\n")
    found = dimms.read(View(HostFS(str(tmp_path))))

    assert found == [{"count": 2, "size_bytes": 32 * 2**30, "type": "Registered-DDR5"}]


def test_a_table_that_does_not_end_is_refused() -> None:
    with pytest.raises(ParseError, match="does not end"):
        dimms.parse_table(TABLE[:60])


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=300), st.tuples(st.integers(0, len(TABLE)), st.binary(max_size=8))))
def test_any_bytes_are_a_table_or_refused(data: bytes | tuple[int, bytes]) -> None:
    text = data if isinstance(data, bytes) else TABLE[: data[0]] + data[1] + TABLE[data[0] + len(data[1]) :]
    try:
        assert isinstance(dimms.parse_table(text), list)
    except ParseError:
        pass
