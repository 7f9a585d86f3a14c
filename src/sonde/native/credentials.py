"""setgroups, setresgid and setresuid for the calling thread alone: the kernel's own calls, not those of the C library.

credentials(7): "At the kernel level, process credentials are a per-thread attribute." There is no way back: the thread
is to end when its work is done.
"""

from __future__ import annotations

import ctypes
import os
import platform
from collections.abc import Sequence

from sonde.errors import Denied

# arch/x86/entry/syscalls/syscall_64.tbl; include/uapi/asm-generic/unistd.h for arm64 and riscv64
_GENERIC = {"setresuid": 147, "setresgid": 149, "setgroups": 159}
_NUMBERS = {
    "x86_64": {"setgroups": 116, "setresuid": 117, "setresgid": 119},
    "aarch64": _GENERIC,
    "riscv64": _GENERIC,
}


def take_on(uid: int, gid: int, groups: Sequence[int]) -> None:
    """Give this thread a user, a group and groups. Groups first: afterwards it may not."""
    numbers = _NUMBERS.get(platform.machine())
    if numbers is None:
        raise Denied(f"files of other users cannot be looked at safely on {platform.machine()}")
    libc = ctypes.CDLL(None, use_errno=True)
    list_of = (ctypes.c_uint32 * len(groups))(*groups)
    user, group = ctypes.c_uint32(uid), ctypes.c_uint32(gid)
    for name, arguments in (
        ("setgroups", (ctypes.c_long(len(groups)), list_of)),
        ("setresgid", (group, group, group)),
        ("setresuid", (user, user, user)),
    ):
        if libc.syscall(ctypes.c_long(numbers[name]), *arguments):
            raise Denied(
                f"this daemon may not act for user {uid}: {name}: {os.strerror(ctypes.get_errno())}",
                hint="run it as root, or with CAP_SETUID and CAP_SETGID",
            )
