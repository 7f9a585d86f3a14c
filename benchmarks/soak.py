"""Ten minutes of the whole daemon at 1 Hz, scraped: its memory must not grow."""

from __future__ import annotations

import time
from contextlib import ExitStack

from benchmarks.daemon import Scraper, daemon, slurm_job
from benchmarks.harness import Row, resident_bytes

# The first blocks of the archive are made after a minute, and what that needs of the heap is there after four more: a
# quiet daemon goes from 20.1 to 20.6 MB in that time and then stays (docs/adr/0026).
_SETTLE, _SECONDS = 300.0, 600.0


def measure(seconds: float = _SECONDS) -> list[dict[str, object]]:
    with ExitStack() as stack:
        stack.enter_context(slurm_job(64))
        pid, port = stack.enter_context(daemon(stack))
        time.sleep(2.0)
        scraper = Scraper([port])
        scraper.start()
        time.sleep(_SETTLE)
        first = resident_bytes(pid)
        time.sleep(seconds)
        last = resident_bytes(pid)
        scraper.end()
    detail = f"from {first / 1e6:.2f} to {last / 1e6:.2f} MB, {scraper.pages} pages, {scraper.errors} errors"
    return [
        Row(
            f"growth of resident memory over {seconds / 60:.0f} minutes", (last - first) / 1e6, "MB", 0.5, detail
        ).as_dict()
    ]


if __name__ == "__main__":
    print(measure())
