"""The plug-ins by name, imported only when one is asked for.

One line here is all that a new collector or sink needs beside its own module. The name is also the module's, the
configuration section's and, in camel case, the class'. The sinks of a dialect stand in its package.
"""

from __future__ import annotations

import sys
from importlib import import_module

from sonde.errors import ConfigError

COLLECTORS: dict[str, str] = {
    "cpu": "sonde.collectors.cpu:CpuCollector",
    "load": "sonde.collectors.load:LoadCollector",
    "memory": "sonde.collectors.memory:MemoryCollector",
    "vmstat": "sonde.collectors.vmstat:VmstatCollector",
    "pressure": "sonde.collectors.pressure:PressureCollector",
    "disk": "sonde.collectors.disk:DiskCollector",
    "filesystem": "sonde.collectors.filesystem:FilesystemCollector",
    "nfs": "sonde.collectors.nfs:NfsCollector",
    "mountstats": "sonde.collectors.mountstats:MountstatsCollector",
    "lustre": "sonde.collectors.lustre:LustreCollector",
    "network": "sonde.collectors.network:NetworkCollector",
    "ethtool": "sonde.collectors.ethtool:EthtoolCollector",
    "tcp": "sonde.collectors.tcp:TcpCollector",
    "sockets": "sonde.collectors.sockets:SocketsCollector",
    "softirq": "sonde.collectors.softirq:SoftirqCollector",
    "softnet": "sonde.collectors.softnet:SoftnetCollector",
    "host": "sonde.collectors.host:HostCollector",
    "files": "sonde.collectors.files:FilesCollector",
    "textfile": "sonde.collectors.textfile:TextfileCollector",
    "numa": "sonde.collectors.numa:NumaCollector",
    "power": "sonde.collectors.power:PowerCollector",
    "interrupts": "sonde.collectors.interrupts:InterruptsCollector",
    "cpufreq": "sonde.collectors.cpufreq:CpufreqCollector",
    "hwmon": "sonde.collectors.hwmon:HwmonCollector",
    "thermal_zone": "sonde.collectors.thermal_zone:ThermalZoneCollector",
    "infiniband": "sonde.collectors.infiniband:InfinibandCollector",
    "ipmi": "sonde.collectors.ipmi:IpmiCollector",
    "kvm": "sonde.collectors.kvm:KvmCollector",
    "job": "sonde.collectors.job:JobCollector",
    "container": "sonde.collectors.container:ContainerCollector",
    "process": "sonde.collectors.process:ProcessCollector",
    "perf": "sonde.collectors.perf:PerfCollector",
    "daemon": "sonde.collectors.daemon:DaemonCollector",
}

# Asked for by name only: one series per process, interrupt line or NIC queue, devices that answer slowly, guests, and
# counters that whoever profiles wants for himself.
# Not even imported otherwise.
OFF_BY_DEFAULT = frozenset({"interrupts", "ipmi", "kvm", "ethtool", "mountstats", "process", "perf"})

SINKS: dict[str, str] = {
    "archive": "sonde.sinks.archive:ArchiveSink",
    "jsonl": "sonde.sinks.jsonl:JsonlSink",
    "otlp": "sonde.sinks.otlp:OtlpSink",
    "prometheus": "sonde.sinks.prometheus:PrometheusSink",
    "remote_write": "sonde.sinks.remote_write:RemoteWriteSink",
    "dynolog_log": "sonde.dialects.dynolog.log:DynologLogSink",
    "dynolog_prometheus": "sonde.dialects.dynolog.page:DynologPrometheusSink",
    "dynolog_otlp": "sonde.dialects.dynolog.otlp:DynologOtlpSink",
    "dynolog_relay": "sonde.dialects.dynolog.relay:DynologRelaySink",
    "dynolog_ods": "sonde.dialects.dynolog.graph:DynologOdsSink",
    "dynolog_scuba": "sonde.dialects.dynolog.graph:DynologScubaSink",
}

SCHEDULERS: dict[str, str] = {
    "slurm": "sonde.schedulers.slurm:SlurmScheduler",
    "pbs": "sonde.schedulers.pbs:PbsScheduler",
    "oar": "sonde.schedulers.oar:OarScheduler",
    "kubernetes": "sonde.schedulers.kubernetes:KubernetesScheduler",
    "local": "sonde.schedulers.local:LocalScheduler",
}


def load(table: dict[str, str], name: str, key: str = "") -> type:
    """Import the class behind a name. `key` is the dotted key that names it, for the message when there is none."""
    try:
        target = table[name]
    except KeyError:
        import difflib  # only on the way to an error

        where = f"{key}: " if key else ""
        close = difflib.get_close_matches(name, table, n=1)
        meant = f"did you mean {close[0]!r}? There" if close else "there"
        raise ConfigError(f"{where}no plug-in is called {name!r}; {meant} are {', '.join(sorted(table))}") from None
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, type):
        raise TypeError(f"{target} is not a class")
    return found


def forget(table: dict[str, str], name: str) -> None:
    """Let go of a plug-in that has nothing to do here, 20 to 110 kB each; `load` imports it again."""
    package, _, module = table[name].partition(":")[0].rpartition(".")
    sys.modules.pop(f"{package}.{module}", None)
    vars(sys.modules[package]).pop(module, None)
