"""What runs inside the training process, and the wire it shares with the daemon.

Users choose the interpreter this runs in: it stays clean for Python 3.9 and imports nothing of sonde but itself. The
wheel `sonde-agent` carries it alone (docs/adr/0015).
"""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.1.0"  # the same as sonde.version.VERSION, which may not be imported here
