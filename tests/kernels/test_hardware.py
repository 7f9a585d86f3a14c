"""Sensors, RDMA, NUMA and IPMI as a real kernel presents them: devices of QEMU and software RoCE, in one boot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.fixtures.sdr import compact, full
from tests.integration.conftest import require
from tests.kernels.conftest import Boot

pytestmark = pytest.mark.long

MODULES = ["virtio_pci", "virtio_net", "crc32_generic", "rdma_rxe", "ib_uverbs", "nvme", "ipmi_si", "ipmi_devintf"]
PROVIDERS = sorted(map(str, Path("/usr/lib").glob("*/libibverbs/librxe-*.so")))  # of libibverbs, for soft RoCE
MESSAGES = 200

# The readings are set by QEMU's own command for it (30h); 44h adds an entry to the event log.
SCRIPT = """
import json, subprocess, time
from sonde.hostfs import HostFS
from sonde.native.ipmi import Bmc
from sonde.pipeline.assembly import construct
from sonde.registry import COLLECTORS, load

subprocess.run(["ifconfig", "eth0", "10.0.2.15", "netmask", "255.255.255.0", "up"], check=True)
subprocess.run(["/usr/bin/rdma", "link", "add", "rxe0", "type", "rxe", "netdev", "eth0"], check=True)

def taken(name):
    cls = load(COLLECTORS, name)
    collector = construct(cls, HostFS(), cls.Config())
    first, reading = collector.collect(), collector.collect()
    collector.close()
    series = [
        [spec.name, dict(zip(spec.labels, labels)), value]
        for (spec, labels), value in zip(reading.layout, reading.values)
    ]
    gaps = [[gap.spec.name, list(gap.labels), gap.quality.value, gap.reason] for gap in reading.gaps]
    return {"series": series, "gaps": gaps, "stable": first.layout is reading.layout}

result = {"idle": taken("infiniband")}
words = ["/usr/bin/ibv_rc_pingpong", "-d", "rxe0", "-g", "1", "-n", "MESSAGES", "-s", "1024"]
server = subprocess.Popen(words, stdout=subprocess.DEVNULL)
time.sleep(1)
client = subprocess.run([*words, "127.0.0.1"], capture_output=True, text=True)
print(client.stdout, client.stderr)
server.wait(30)

bmc = Bmc("/dev/ipmi0")
for number, raw in ((1, 0xEC), (2, 121), (3, 75), (4, 210)):
    bmc.ask(0x04, 0x30, bytes([number, 0x01, raw]))
for _ in range(3):
    bmc.ask(0x0A, 0x44, bytes([0, 0, 2, 0, 0, 0, 0, 0x20, 0, 4, 1, 1, 1, 0x57, 0, 0]))
bmc.close()

for name in ("infiniband", "hwmon", "numa", "ipmi", "interrupts"):
    result[name] = taken(name)
print("RESULT", json.dumps(result))
"""

SENSORS = [
    *(compact(1, "a"), compact(2, "b", kind=2), compact(3, "c", kind=4), compact(4, "d", kind=9)),
    full(1, "Inlet Temp"),  # two's complement: EC is -20 °C
    full(2, "12V", kind=2, unit=4, units1=0x00, exponents=0xF0),  # 121 · 10^-1 V
    full(3, "Fan 1", kind=4, unit=18, units1=0x00, m=100),  # 75 · 100 RPM
    full(4, "PSU 1", kind=9, unit=6, units1=0x00, m=2, b=5),  # 210 · 2 + 5 W
    full(9, "Absent"),
    full(5, "Elsewhere", owner=0x2C),
]


# Two nodes of memory, a network card below soft RoCE, a disk, and a BMC with the sensors above.
DEVICES = [
    *("-object", "memory-backend-ram,id=m0,size=256M", "-object", "memory-backend-ram,id=m1,size=256M"),
    *("-numa", "node,nodeid=0,memdev=m0,cpus=0", "-numa", "node,nodeid=1,memdev=m1"),
    *("-netdev", "user,id=n0,restrict=on", "-device", "virtio-net-pci,netdev=n0,romfile="),
    *("-blockdev", "null-co,node-name=d0,size=16777216", "-device", "nvme,serial=sonde,drive=d0"),
    *("-device", "ipmi-bmc-sim,id=bmc0,sdrfile={records}", "-device", "isa-ipmi-kcs,bmc=bmc0"),
]


class Result:
    """What the guest's collectors gave."""

    def __init__(self, output: str) -> None:
        (line,) = [line for line in output.splitlines() if line.startswith("RESULT ")]
        self.output = output
        self._found: dict[str, Any] = json.loads(line.removeprefix("RESULT "))

    def values(self, collector: str, metric: str, /, **labels: str) -> list[float]:
        return [
            value
            for found, own, value in self._found[collector]["series"]
            if found == metric and labels.items() <= own.items()
        ]

    def value(self, collector: str, metric: str, /, **labels: str) -> float:
        (value,) = self.values(collector, metric, **labels)
        return value

    def gaps(self, name: str) -> list[list[Any]]:
        found: list[list[Any]] = self._found[name]["gaps"]
        return found

    def stable(self, name: str) -> bool:
        return bool(self._found[name]["stable"])


@pytest.fixture(scope="module")
def result(boot: Boot, tmp_path_factory: pytest.TempPathFactory) -> Result:
    require("ibv_rc_pingpong")
    records = tmp_path_factory.mktemp("bmc") / "records"
    records.write_bytes(b"".join(SENSORS))
    devices = [option.format(records=records) for option in DEVICES]
    assert PROVIDERS, "ibverbs-providers is not installed; tests/kernels/install-real-programs does it"
    carried = {path: Path(path).read_bytes() for path in PROVIDERS}
    carried |= {"/etc/libibverbs.d/rxe.driver": b"driver rxe\n"}
    return Result(
        boot(
            "linux-image-amd64",
            MODULES,
            SCRIPT.replace("MESSAGES", str(MESSAGES)),
            devices,
            programs=["rdma", "ibv_rc_pingpong"],
            files=carried,
        )
    )


def test_hardware_counters_of_rdma_count_the_packets(result: Result) -> None:
    counter = "sonde_rdma_hw_counter_total"
    sent, received = (result.value("infiniband", counter, counter=name) for name in ("sent_pkts", "rcvd_pkts"))

    assert set(result.values("idle", counter)) == {0}
    # Each message and each of its acknowledgements is a packet, in both directions.
    assert sent == received == 4 * MESSAGES
    assert result.value("infiniband", counter, counter="rdma_sends") == 2 * MESSAGES
    assert result.value("infiniband", counter, counter="send_err") == 0


def test_a_port_of_soft_roce_is_active_ethernet(result: Result) -> None:
    assert result.value("infiniband", "node_infiniband_state_id", device="rxe0", port="1") == 4
    assert result.value("infiniband", "node_infiniband_physical_state_id", device="rxe0", port="1") == 5
    assert result.value("infiniband", "node_infiniband_rate_bytes_per_second", device="rxe0") == 2.5e9 / 8
    assert result.value("infiniband", "sonde_rdma_port_info", link_layer="Ethernet") == 1
    assert result.value("infiniband", "node_infiniband_info", device="rxe0") == 1


def test_the_temperature_of_an_nvme_disk_comes_through_hwmon(result: Result) -> None:
    sensor = {"chip": "nvme_nvme0", "sensor": "temp1"}

    assert result.value("hwmon", "node_hwmon_temp_celsius", **sensor) == 49.85  # 323 K, as QEMU's controller says
    assert result.value("hwmon", "node_hwmon_temp_crit_celsius", **sensor) == 99.85
    assert result.value("hwmon", "node_hwmon_sensor_label", **sensor, label="Composite") == 1
    assert result.value("hwmon", "node_hwmon_chip_names", chip="nvme_nvme0", chip_name="nvme") == 1


def test_both_numa_nodes_have_their_memory(result: Result) -> None:
    totals = [result.value("numa", "node_memory_numa_MemTotal", node=node) for node in ("0", "1")]
    hits = [result.value("numa", "node_memory_numa_numa_hit_total", node=node) for node in ("0", "1")]

    assert all(150 * 2**20 < total <= 256 * 2**20 for total in totals)
    assert all(hit > 0 for hit in hits)


def test_sensors_of_the_bmc_are_read_and_decoded(result: Result) -> None:
    assert result.value("ipmi", "sonde_ipmi_temperature_celsius", name="Inlet Temp") == -20
    assert result.value("ipmi", "sonde_ipmi_voltage_volts", name="12V") == 12.1
    assert result.value("ipmi", "sonde_ipmi_fan_speed_rpm", name="Fan 1") == 7500
    assert result.value("ipmi", "sonde_ipmi_power_watts", name="PSU 1") == 425
    assert result.value("ipmi", "sonde_ipmi_sensor_state", name="Inlet Temp", type="temperature") == 0


def test_sensors_the_bmc_cannot_read_are_gaps(result: Result) -> None:
    gaps = {labels[1]: (quality, reason) for _, labels, quality, reason in result.gaps("ipmi")}

    assert gaps.keys() == {"Absent", "Elsewhere"}
    assert gaps["Absent"][0] == "blank"
    assert gaps["Elsewhere"] == ("unsupported", "the sensor belongs to another controller, 2ch")


def test_the_event_log_of_the_bmc_is_counted(result: Result) -> None:
    assert result.value("ipmi", "sonde_ipmi_sel_entries") == 3
    assert result.value("ipmi", "sonde_ipmi_sel_free_bytes") == (128 - 3) * 16
    assert result.value("ipmi", "sonde_ipmi_sel_overflow") == 0


def test_interrupts_of_the_devices_are_counted(result: Result) -> None:
    assert result.value("interrupts", "node_interrupts_total", cpu="0", devices="5-fasteoi ipmi_si") > 10
    assert result.value("interrupts", "node_interrupts_total", cpu="0", type="LOC") > 100


def test_layouts_stay_the_same_from_tick_to_tick(result: Result) -> None:
    names = ("idle", "infiniband", "hwmon", "numa", "ipmi", "interrupts")

    assert [name for name in names if not result.stable(name)] == []
