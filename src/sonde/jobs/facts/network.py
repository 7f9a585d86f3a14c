"""The network links of a node, from /sys/class/net and /sys/class/infiniband.

    /sys/class/net/eth0/{speed,mtu,operstate,duplex}            100000 9000 up full
    /sys/class/net/eth0/device/driver                           → ../../bus/pci/drivers/mlx5_core
    /sys/class/infiniband/mlx5_0/ports/1/{rate,state}           400 Gb/sec (4X NDR), 4: ACTIVE

Links that no device is behind (veth, bridges, tunnels) come and go with containers and are left out, but for bonds.
Addresses tell machines apart and nothing else: they are not read.
"""

from __future__ import annotations

from sonde.jobs.facts.view import Facts, View, integer, present

_NET = "sys/class/net"
_INFINIBAND = "sys/class/infiniband"


def read(view: View) -> Facts:
    return {name: link for name in view.names(_NET, "network") if (link := _link(view, name)) is not None}


def _link(view: View, name: str) -> Facts | None:
    folder = f"{_NET}/{name}"
    real = view.host.exists(f"{folder}/device")
    bond = view.host.exists(f"{folder}/bonding")
    one = view.attributes(folder, ("speed", "mtu", "operstate", "duplex", "type"))
    if not (real or bond) and not (name.startswith("eth") and "mtu" in one):  # the only link a container may have
        return None
    speed = integer(one.get("speed", ""))
    return present(
        {
            "state": one.get("operstate"),
            "bits_per_second": speed * 1_000_000 if speed is not None and speed > 0 else None,  # -1: not known
            "mtu": integer(one.get("mtu", "")),
            "duplex": one.get("duplex"),
            "driver": view.target(f"{folder}/device/driver"),
            "bond": (view.text(f"{folder}/bonding/mode") or "").partition(" ")[0] or None if bond else None,
            "numa_node": _node(view, f"{folder}/device/numa_node"),
        }
    )


def _node(view: View, path: str) -> int | None:
    number = view.number(path)
    return number if number is not None and number >= 0 else None


def infiniband(view: View) -> Facts:
    """The ports of host channel adapters and RoCE cards; empty where there are none."""
    found: Facts = {}
    for device in view.names(_INFINIBAND, "infiniband"):
        folder = f"{_INFINIBAND}/{device}"
        about = view.attributes(folder, ("fw_ver", "hca_type", "board_id"))
        for port in view.names(f"{folder}/ports"):
            one = view.attributes(f"{folder}/ports/{port}", ("rate", "state", "link_layer"))
            found[f"{device}/{port}"] = present(
                {
                    "state": one.get("state", "").partition(": ")[2].lower() or None,
                    "rate": one.get("rate"),
                    "link_layer": one.get("link_layer"),
                    "firmware": about.get("fw_ver"),
                    "type": about.get("hca_type"),
                }
            )
    return found
