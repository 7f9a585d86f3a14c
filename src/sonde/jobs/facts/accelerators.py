"""GPUs and other accelerators of a node, from the PCI bus and what their drivers leave in /proc and /sys.

    /sys/bus/pci/devices/0000:17:00.0/{class,vendor,device}     0x030200 0x10de 0x2330
    /proc/driver/nvidia/gpus/0000:17:00.0/information           Model:  NVIDIA H100 80GB HBM3
    /proc/driver/nvidia/version                                 NVRM version: NVIDIA UNIX … Kernel Module  535.161.08
    /sys/module/amdgpu/version                                  6.7.0

Classes 0x0300 and 0x0302 are display and 3D controllers, 0x1200 processing accelerators (PCI code and ID assignment).
A vendor that makes both network cards and accelerators is told apart by the class; Neuron devices have none of these
and are known by their numbers.
"""

from __future__ import annotations

import re

from sonde.jobs.facts.view import Facts, View, fields, present

_BUS = "sys/bus/pci/devices"
_CLASSES = ("0x0302", "0x1200", "0x0380")
_DISPLAY = "0x0300"  # of consumer GPUs too, and of the graphics of every server's management controller
_VENDORS = {
    "0x10de": "nvidia",
    "0x1002": "amd",
    "0x8086": "intel",
    "0x19e5": "huawei",
    "0x1da3": "habana",
    "0x1d0f": "amazon",
    "0x1ae0": "google",
    "0x1e52": "tenstorrent",
    "0x1d95": "graphcore",
    "0x1b36": "qemu",
}
_COMPUTE_DISPLAYS = ("nvidia", "amd", "intel")
_NEURON = {"0x7064", "0x7065", "0x7066", "0x7067", "0x7164", "0x7264"}  # Inferentia 1, Trainium 1, Inferentia 2, later
_ASCEND = {"0xd100": "Ascend 310", "0xd500": "Ascend 310P", "0xd801": "Ascend 910", "0xd802": "Ascend 910B"}
_ATTRIBUTES = (
    *("class", "vendor", "device", "numa_node"),
    *("current_link_speed", "current_link_width", "max_link_speed", "max_link_width"),
)
_NVIDIA_VERSION = re.compile(r"Module(?: for \S+)?\s+([0-9][0-9.]+)")
_MODULES = ("amdgpu", "habanalabs", "neuron", "xe", "i915")


def read(view: View) -> Facts:
    found = [device for address in view.names(_BUS, "accelerators") if (device := _device(view, address))]
    return present({"devices": found, "drivers": _drivers(view)})


def _device(view: View, address: str) -> Facts | None:
    folder = f"{_BUS}/{address}"
    one = view.attributes(folder, _ATTRIBUTES)
    vendor = _VENDORS.get(one.get("vendor", ""), one.get("vendor", ""))
    if not _is_accelerator(one.get("class", "")[:6], vendor, one.get("device", "")):
        return None
    node = one.get("numa_node", "-1")
    return present(
        {
            "address": address,
            "vendor": vendor,
            "device": one.get("device"),
            "name": _name(view, address, vendor, one.get("device", "")),
            "driver": view.target(f"{folder}/driver"),
            "numa_node": int(node) if node.isdigit() else None,
            "link": _link(one, "current"),
            "max_link": _link(one, "max"),
        }
    )


def _is_accelerator(kind: str, vendor: str, device: str) -> bool:
    if kind in _CLASSES:
        return True
    return (kind == _DISPLAY and vendor in _COMPUTE_DISPLAYS) or (vendor == "amazon" and device in _NEURON)


def _name(view: View, address: str, vendor: str, device: str) -> str | None:
    if vendor == "nvidia":
        text = view.text(f"proc/driver/nvidia/gpus/{address}/information") or ""
        return fields(text).get("Model")
    if vendor == "huawei":
        return _ASCEND.get(device)
    if vendor == "amd":
        return view.text(f"{_BUS}/{address}/product_name") or None
    return None


def _link(one: dict[str, str], which: str) -> str | None:
    """`16.0 GT/s x16`; an idle device lowers its speed to save power, so it is the width that tells of a bad slot."""
    speed, width = one.get(f"{which}_link_speed"), one.get(f"{which}_link_width")
    if not speed or not width or width in ("0", "255"):
        return None
    return f"{speed.removesuffix(' PCIe')} x{width}"


def _drivers(view: View) -> Facts:
    """The version of each kernel driver that is loaded."""
    text = view.text("proc/driver/nvidia/version") or ""
    match = _NVIDIA_VERSION.search(text)
    found: Facts = {"nvidia": match[1]} if match else {}
    ascend = view.text("usr/local/Ascend/driver/version.info") or ""
    found["ascend"] = fields(ascend, "=").get("Version")
    found |= {name: view.text(f"sys/module/{name}/version") for name in _MODULES}
    return present(found)
