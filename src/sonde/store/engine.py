"""SQLite as the interpreter's own C module has it.

The package around it adds converters between SQL text and dates, which nobody asks for here, and imports datetime for
them: 0.3 MB. `from sonde.store.engine import sqlite3`, and everything has its usual name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import sqlite3
else:
    try:
        import _sqlite3 as sqlite3
    except ImportError:  # not CPython
        import sqlite3

__all__ = ["sqlite3"]
