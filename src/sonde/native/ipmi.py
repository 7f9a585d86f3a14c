"""Questions to a baseboard management controller, through /dev/ipmi0 (include/uapi/linux/ipmi.h).

A request is an ioctl with a structure of pointers; the answer is fetched by another one when poll(2) says so. Its first
byte is a completion code, 0 for done. Commands are those of IPMI 2.0: sensor 35.14, repository 33.9 to 33.12, log 31.2.
"""

from __future__ import annotations

import fcntl
import os
import select
import struct
import time
from array import array
from collections.abc import Callable, Iterator

from sonde.errors import ReadError, Unavailable
from sonde.native import sdr

Ask = Callable[[int, int, bytes, int], bytes]
"""Network function, command, data, LUN → the answer behind its completion code."""

SENSOR, STORAGE = 0x04, 0x0A
_GET_READING = 0x2D
_REPOSITORY_INFO, _RESERVE_REPOSITORY, _GET_RECORD, _LOG_INFO = 0x20, 0x22, 0x23, 0x40

_RESERVATION_LOST, _TOO_MANY_BYTES = 0xC5, (0xC7, 0xC8, 0xCA, 0xFF)
_CODES = {
    0xC0: "the BMC is busy",
    0xC1: "the BMC does not know the command",
    0xC3: "the BMC did not get an answer from the sensor",
    0xCB: "the BMC has no such sensor or record",
    0xCE: "the BMC cannot answer",
    0xD4: "the BMC does not allow it",
    0xD5: "not in the present state",
}
_LAST = 0xFFFF
_MOST_RECORDS = 4096
_TRIES = 8
_CHUNK = 32  # bytes of a record at once; fewer when the BMC cannot

# struct ipmi_req, ipmi_recv and ipmi_system_interface_addr; `@`: as the compiler lays them out.
_REQUEST = struct.Struct("@PIlBBHP")
_RECEIVE = struct.Struct("@iPIlBBHP")
_ADDRESS = struct.Struct("@ihB")
_SYSTEM_INTERFACE, _BMC_CHANNEL = 0x0C, 0x0F
_ANSWER = 1  # recv_type of a response; others are events and commands of strangers
_LARGEST = 1024


def _ioctl(direction: int, number: int, size: int) -> int:
    return direction << 30 | size << 16 | ord("i") << 8 | number


_SEND = _ioctl(2, 13, _REQUEST.size)  # _IOR
_RECEIVE_TRUNCATED = _ioctl(3, 11, _RECEIVE.size)  # _IOWR
_MACHINES = ("x86_64", "aarch64", "riscv64", "i686")  # where ioctl numbers are put together this way


class Refused(ReadError):
    """The controller answered with a completion code."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{_CODES.get(code, 'the BMC refused')} (completion code {code:02x}h)")
        self.code = code


class Bmc:
    """An open controller. One question at a time, from one thread."""

    def __init__(self, path: str, timeout: float = 5.0) -> None:
        self._fd = -1
        if os.uname().machine not in _MACHINES:
            raise Unavailable(f"the ioctl numbers of {os.uname().machine} are not known")
        self._timeout = timeout
        self._serial = 0
        self._fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def ask(self, function: int, command: int, data: bytes = b"", lun: int = 0) -> bytes:
        """Send a command and wait for its answer. Refused, ReadError after the timeout, OSError of the driver."""
        self._serial += 1
        address = array("B", _ADDRESS.pack(_SYSTEM_INTERFACE, _BMC_CHANNEL, lun).ljust(12, b"\0"))
        body = array("B", data or b"\0")
        request = _REQUEST.pack(
            address.buffer_info()[0],
            len(address),
            self._serial,
            function,
            command,
            len(data),
            body.buffer_info()[0],
        )
        try:
            fcntl.ioctl(self._fd, _SEND, request)
        except OSError as error:
            raise ReadError(f"the IPMI driver did not take the command: {error.strerror}") from None
        answer = self._answer(time.monotonic() + self._timeout)
        if not answer:
            raise ReadError("the BMC answered with nothing")
        if answer[0]:
            raise Refused(answer[0])
        return answer[1:]

    def _answer(self, deadline: float) -> bytes:
        poll = select.poll()
        poll.register(self._fd, select.POLLIN)
        while (remaining := deadline - time.monotonic()) > 0 and poll.poll(remaining * 1000):
            kind, serial, answer = self._receive()
            if kind == _ANSWER and serial == self._serial:
                return answer
        raise ReadError(f"the BMC did not answer within {self._timeout:g} s")

    def _receive(self) -> tuple[int, int, bytes]:
        address, body = array("B", bytes(64)), array("B", bytes(_LARGEST))
        received = bytearray(
            _RECEIVE.pack(0, address.buffer_info()[0], len(address), 0, 0, 0, len(body), body.buffer_info()[0])
        )
        try:
            fcntl.ioctl(self._fd, _RECEIVE_TRUNCATED, received)
        except BlockingIOError:  # another reader was faster
            return 0, 0, b""
        kind, _, _, serial, _, _, length, _ = _RECEIVE.unpack(received)
        return kind, serial, body.tobytes()[:length]

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __del__(self) -> None:
        self.close()


def repository_stamp(ask: Ask) -> bytes:
    """What changes when records are added or erased: their number and two times."""
    info = ask(STORAGE, _REPOSITORY_INFO, b"", 0)
    if len(info) < 13:
        raise ReadError(f"the BMC says too little of its repository: {info.hex(' ')}")
    return info[1:3] + info[5:13]


def records(ask: Ask) -> Iterator[bytes]:
    """All sensor data records of the repository, one after the other."""
    wanted, reservation, seen = 0, _reserve(ask), set[int]()
    tries = 0
    while wanted != _LAST and wanted not in seen and len(seen) < _MOST_RECORDS:
        try:
            following, record = _record(ask, reservation, wanted)
        except Refused as error:
            tries += 1
            if error.code != _RESERVATION_LOST or tries > _TRIES:
                raise
            reservation = _reserve(ask)  # somebody else has reserved meanwhile: ask for the same record again
            continue
        yield record
        seen.add(wanted)
        wanted = following


def _reserve(ask: Ask) -> bytes:
    return ask(STORAGE, _RESERVE_REPOSITORY, b"", 0)[:2]


def _record(ask: Ask, reservation: bytes, number: int) -> tuple[int, bytes]:
    following, data = _piece(ask, reservation, number, 0, 5)
    _, _, length = sdr.parse_header(data)
    chunk = _CHUNK
    while (left := 5 + length - len(data)) > 0:
        try:
            _, more = _piece(ask, reservation, number, len(data), min(left, chunk))
        except Refused as error:
            if error.code not in _TOO_MANY_BYTES or chunk == 1:
                raise
            chunk //= 2
            continue
        if not more:
            raise ReadError(f"the BMC ends record {number} before its end")
        data += more
    return following, data


def _piece(ask: Ask, reservation: bytes, number: int, offset: int, count: int) -> tuple[int, bytes]:
    answer = ask(STORAGE, _GET_RECORD, reservation + struct.pack("<HBB", number, offset, count), 0)
    if len(answer) < 2:
        raise ReadError(f"the BMC answers too little of record {number}: {answer.hex(' ')}")
    return answer[0] | answer[1] << 8, answer[2:]


def sensor_state(ask: Ask, sensor: sdr.Sensor) -> sdr.State:
    return sdr.parse_state(ask(SENSOR, _GET_READING, bytes([sensor.number]), sensor.lun))


def log_usage(ask: Ask) -> tuple[int, int, bool]:
    """Entries of the system event log, the bytes that are free, and whether entries were lost."""
    info = ask(STORAGE, _LOG_INFO, b"", 0)
    if len(info) < 14:
        raise ReadError(f"the BMC says too little of its log: {info.hex(' ')}")
    return info[1] | info[2] << 8, info[3] | info[4] << 8, bool(info[13] & 0x80)
