"""A process that speaks libkineto's protocol and writes what a trace would be: for users and tricks PyTorch has not.

python traced.py DIRECTORY UID [TRICK]: registers at DIRECTORY/dynolog as that user, polls every 50 ms, and when it
gets a configuration makes the temporary file, waits for the start and gives the file its name. A trick is `link:PATH`,
`swap:PATH` (a link in place of the file, at once or after it was there) or `large`.
"""

from __future__ import annotations

import os
import socket
import sys
import time

from sonde.agent import wire


def main() -> int:
    folder, uid, trick = sys.argv[1], int(sys.argv[2]), sys.argv[3] if len(sys.argv) > 3 else ""
    if uid != os.getuid():
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    environ = {"KINETO_IPC_SOCKET_DIR": folder}
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    sock.bind(wire.client_address(str(os.getpid()), environ))
    sock.settimeout(1)
    print("ready", flush=True)
    until = time.monotonic() + 600  # it ends with its parent, anyway
    parent = os.getppid()
    while time.monotonic() < until and os.getppid() == parent:
        try:
            sock.sendto(wire.pack_request(wire.Request(3, 0, (os.getpid(),))), wire.daemon_address(environ))
            text = wire.parse_config(wire.parse(sock.recv(65536))[1])
        except OSError:
            time.sleep(0.1)
            continue
        if text:
            write(text, trick)
        time.sleep(0.05)
    return 0


def write(text: str, trick: str) -> None:
    settings = dict(line.strip().partition("=")[::2] for line in text.splitlines() if "=" in line)
    path = settings["ACTIVITIES_LOG_FILE"].replace(".json", f"_{os.getpid()}.json")
    if trick.startswith("link:"):
        os.symlink(trick.removeprefix("link:"), path)
        return
    with open(f"{path}.tmp", "w", encoding="utf-8") as file:
        file.write('{"traceEvents": []}' + " " * (10_000_000 if trick == "large" else 0))
    time.sleep(max(0.0, int(settings.get("PROFILE_START_TIME", "0")) / 1000 - time.time()))
    os.rename(f"{path}.tmp", path)
    if trick.startswith("swap:"):  # once it counts as written, it becomes a link to something else
        time.sleep(1.5)
        os.unlink(path)
        os.symlink(trick.removeprefix("swap:"), path)


if __name__ == "__main__":
    raise SystemExit(main())
