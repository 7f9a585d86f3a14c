"""Durations and sizes with their units, as people write them: `500ms`, `30s`, `2GiB`."""

from __future__ import annotations

DURATIONS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
SIZES = {
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
# A hundred years and an exbibyte: nobody waits or stores longer, and in nanoseconds or bytes both fit 64 bits.
_LONGEST = 36525 * 86400.0
_LARGEST = 2**60
_SHOWN = (("d", 86400.0), ("h", 3600.0), ("m", 60.0), ("s", 1.0), ("ms", 1e-3), ("us", 1e-6), ("ns", 1e-9))


class Duration(float):
    """Seconds. Written with a unit in a configuration or on the command line."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Duration:
        number, factor = _split(text, DURATIONS, "a duration needs a unit, as in 500ms, 30s, 5m, 2h or 7d")
        if number * factor > _LONGEST:
            raise ValueError(f"{text!r} is out of range: the longest duration is 36525d, a hundred years")
        return cls(number * factor)

    @property
    def ns(self) -> int:
        return round(self * 1e9)

    def __str__(self) -> str:
        if not self:
            return "0s"
        for unit, size in _SHOWN:
            count = self / size
            if count >= 1 and abs(count - round(count)) < 1e-9 * count:
                return f"{round(count)}{unit}"
        return f"{float(self):g}s"

    __repr__ = __str__


class Size(int):
    """Bytes. Written with a unit in a configuration or on the command line."""

    __slots__ = ()

    @classmethod
    def parse(cls, text: str) -> Size:
        number, factor = _split(text, SIZES, "a size needs a unit, as in 512MB or 2GiB")
        if number * factor > _LARGEST:
            raise ValueError(f"{text!r} is out of range: the largest size is 1048576TiB")
        return cls(round(number * factor))

    def __str__(self) -> str:
        value = int(self)
        for unit in ("TB", "TiB", "GB", "GiB", "MB", "MiB", "kB", "KiB"):
            if value and value % SIZES[unit] == 0:
                return f"{value // SIZES[unit]}{unit}"
        return f"{value}B"

    __repr__ = __str__


def _split(text: str, units: dict[str, float] | dict[str, int], advice: str) -> tuple[float, float]:
    stripped = text.strip()
    digits = stripped.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZµ")
    unit = stripped[len(digits) :].replace("µs", "us")
    try:
        number = float(digits)
    except ValueError:
        raise ValueError(f"{text!r} is not a number with a unit ({advice})") from None
    if not unit:
        raise ValueError(f"{text!r}: {advice}")
    if unit not in units:
        close = [known for known in units if known.lower() == unit.lower()]
        meant = f"; did you mean {close[0]}?" if close else ""
        raise ValueError(f"{text!r}: {unit} is not a unit here, which are {', '.join(units)}{meant}")
    if not 0 <= number < 1e18:
        raise ValueError(f"{text!r} is out of range")
    return number, units[unit]


def human_bytes(count: float) -> str:
    """`1.5 MiB`, for people."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if abs(count) < 1024 or unit == "TiB":
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    raise AssertionError("unreachable")


def human_joules(joules: float) -> str:
    """`126 J`, `35 Wh`, `1.2 kWh`, for people."""
    if joules < 3600:
        return f"{joules:.0f} J"
    return f"{joules / 3600:.3g} Wh" if joules < 3.6e6 else f"{joules / 3.6e6:.3g} kWh"


def human_seconds(seconds: float) -> str:
    """`350 µs`, `1.2 ms`, `42 s`, `3 h 5 m`, for people."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f} µs"
    if seconds < 1:
        return f"{seconds * 1e3:.1f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds // 60:.0f} m {seconds % 60:.0f} s"
    if seconds < 172800:
        return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} m"
    return f"{seconds // 86400:.0f} d {seconds % 86400 // 3600:.0f} h"
