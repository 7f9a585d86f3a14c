"""Networks: Ethernet and the like by device, InfiniBand by port; how near they came to what the link can do."""

from __future__ import annotations

from collections.abc import Sequence

from sonde.jobs.figures.sheet import Sheet
from sonde.jobs.tracks import last, most, ratio, total
from sonde.store.query import Points

NAMES = (
    "node_network_receive_bytes_total",
    "node_network_transmit_bytes_total",
    "node_network_receive_packets_total",
    "node_network_transmit_packets_total",
    "node_network_receive_drop_total",
    "node_network_transmit_drop_total",
    "node_network_receive_errs_total",
    "node_network_transmit_errs_total",
    "node_network_speed_bytes",
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total",
    "node_infiniband_rate_bytes_per_second",
)
_ETHERNET = ("node_network_receive_bytes_total", "node_network_transmit_bytes_total", "node_network_speed_bytes")
_INFINIBAND = (
    "node_infiniband_port_data_received_bytes_total",
    "node_infiniband_port_data_transmitted_bytes_total",
    "node_infiniband_rate_bytes_per_second",
)
_SATURATED = 0.8
_LOCAL = (
    "lo",
    "docker",
    "veth",
    "br-",
    "virbr",
)  # what goes through these does not leave the node, or is counted twice


def measure(sheet: Sheet) -> None:
    _links(sheet, "network", "device", _ETHERNET)
    _links(sheet, "infiniband", "device port", _INFINIBAND)


def _links(sheet: Sheet, kind: str, labels: str, metrics: Sequence[str]) -> None:
    received, sent = [], []
    for points in sheet.readings.of(metrics[0]):
        own = dict(points.series.labels)
        names = {label: own[label] for label in labels.split() if label in own}
        name = ":".join(names.values())
        if kind == "network" and name.startswith(_LOCAL):
            continue
        into, out = (sheet.readings.rate(metric, **names) for metric in metrics[:2])
        speed = last(sheet.readings.total(metrics[2], **names))
        received += [into] if into is not None else []
        sent += [out] if out is not None else []
        sheet.device(
            kind,
            name,
            received_bytes=sheet.readings.increase(metrics[0], **names),
            sent_bytes=sheet.readings.increase(metrics[1], **names),
            received_peak=most(into),
            sent_peak=most(out),
            speed=speed if speed and speed > 0 else None,
            saturated_share=_saturated(speed, into, out),
            **(_lost(sheet, name) if kind == "network" else {}),
        )
    for direction, rates in (("received", received), ("sent", sent)):
        moved = [device.figures[f"{direction}_bytes"] for device in sheet.devices if device.kind == kind]
        known = [bytes_ for bytes_ in moved if bytes_ is not None]
        sheet.put(**{f"{kind}_{direction}": sum(known) if known else None})
        sheet.draw(f"{kind}_{direction}", total(rates) if rates else None)


def _saturated(speed: float | None, *rates: Points | None) -> float | None:
    """Of the direction that was nearer to the speed of the link: share of the values at 80 % of it or more."""
    if not speed or speed <= 0:
        return None
    shares = [
        sum(value >= _SATURATED * speed for value in points.values) / len(points.values)
        for points in rates
        if points is not None
    ]
    return max(shares, default=None)


def _lost(sheet: Sheet, device: str) -> dict[str, float | None]:
    lost = _grown(sheet, device, "drop", "errs")
    return {"lost": lost, "lost_share": ratio(lost, _grown(sheet, device, "packets"))}


def _grown(sheet: Sheet, device: str, *names: str) -> float | None:
    """Both directions together; None when neither was measured."""
    found = [
        sheet.readings.increase(f"node_network_{way}_{name}_total", device=device)
        for way in ("receive", "transmit")
        for name in names
    ]
    known = [value for value in found if value is not None]
    return sum(known) if known else None
