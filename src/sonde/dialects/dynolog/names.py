"""The metrics of dynolog 0.6: percent, milliseconds and increments since the sample before, all of them gauges.

    "cpu_u":"27.638","cpu_u_ms":550,"rx_bytes.eth0":8021,"uptime":11488

Units other than base units have no name in the model: the metric's name and its help carry them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sonde.model import Kind, Layout, MetricSpec, Series, Unit

DEVICE = "net"  # the label that stands for what follows the dot in rx_bytes.eth0


def _gauge(name: str, help: str, unit: Unit = Unit.NONE, labels: tuple[str, ...] = ()) -> MetricSpec:
    return MetricSpec(name, Kind.GAUGE, unit, help, labels)


UPTIME = _gauge("uptime", "Seconds since the kernel started.", Unit.SECONDS)

MIPS = _gauge("mips", "Million instructions per second of an average CPU, since the sample before.")
MEGACYCLES = _gauge("mega_cycles_per_second", "Million cycles per second of an average CPU, since the sample before.")

# dynolog's letter or word of each mode of /proc/stat, in the order of its columns.
MODES = {
    "user": "u",
    "nice": "n",
    "system": "s",
    "idle": "i",
    "iowait": "w",
    "irq": "x",
    "softirq": "y",
    "steal": "z",
}
GUEST_MODES = {"user": "guest", "nice": "guest_nice"}

UTIL = _gauge("cpu_util", "Percent of the CPU time that was not idle; waiting for I/O and steal count as busy.")
SHARES = {
    mode: _gauge(f"cpu_{MODES[mode]}", f"Percent of the CPU time in mode {mode}.")
    for mode in ("user", "system", "idle")
}
GUEST_SHARES = {
    mode: _gauge(f"cpu_{name}", f"Percent of the CPU time in guests, counted in mode {mode} too.")
    for mode, name in GUEST_MODES.items()
}
# All modes but idle have one: dynolog's choice.
TIMES = {
    mode: _gauge(f"cpu_{letter}_ms", f"Milliseconds of CPU time in mode {mode}, all CPUs, since the sample before.")
    for mode, letter in MODES.items()
    if mode != "idle"
}
GUEST_TIMES = {
    mode: _gauge(f"cpu_{name}_ms", f"Milliseconds of CPU time in guests, counted in mode {mode} too, since then.")
    for mode, name in GUEST_MODES.items()
}


def socket_share(mode: str, socket: int) -> MetricSpec:
    """`cpu_u_node1`: a socket's number is part of the name."""
    return _gauge(f"cpu_{MODES[mode]}_node{socket}", f"Percent of the CPU time of socket {socket} in mode {mode}.")


def _traffic(name: str, what: str) -> MetricSpec:
    unit = Unit.BYTES if name.endswith("bytes") else Unit.NONE
    return _gauge(name, f"{what} since the sample before.", unit, (DEVICE,))


# The counter each one is the increment of.
TRAFFIC = {
    "node_network_receive_bytes_total": _traffic("rx_bytes", "Bytes received"),
    "node_network_receive_packets_total": _traffic("rx_packets", "Packets received"),
    "node_network_receive_errs_total": _traffic("rx_errors", "Receive errors"),
    "node_network_receive_drop_total": _traffic("rx_drops", "Received packets dropped"),
    "node_network_transmit_bytes_total": _traffic("tx_bytes", "Bytes sent"),
    "node_network_transmit_packets_total": _traffic("tx_packets", "Packets sent"),
    "node_network_transmit_errs_total": _traffic("tx_errors", "Send errors"),
    "node_network_transmit_drop_total": _traffic("tx_drops", "Packets to be sent that were dropped"),
}


def key(series: Series) -> str:
    """`rx_bytes.eth0`: what a series is called in a record."""
    spec, labels = series
    return f"{spec.name}.{labels[spec.labels.index(DEVICE)]}" if DEVICE in spec.labels else spec.name


def constants(series: Series, own: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The labels that `[daemon] labels` has put on a series, beside the collector's own."""
    spec, labels = series
    return tuple((name, value) for name, value in zip(spec.labels, labels, strict=True) if name not in own)


def layout_of(series: Iterable[Series], more: Sequence[tuple[str, str]]) -> Layout:
    """A layout of these series with further labels on each."""
    if not more:
        return Layout(series)
    names = tuple(name for name, _ in more)
    values = tuple(value for _, value in more)
    specs: dict[MetricSpec, MetricSpec] = {}
    renamed: list[Series] = []
    for spec, labels in series:
        if spec not in specs:
            specs[spec] = MetricSpec(spec.name, spec.kind, spec.unit, spec.help, spec.labels + names)
        renamed.append((specs[spec], labels + values))
    return Layout(renamed)
