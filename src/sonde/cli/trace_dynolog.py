"""Ask a real dynolog for a trace: it hands the text to its processes and says no more, so neither do we.

{"activityProfilersTriggered":[812],"activityProfilersBusy":0,"processesMatched":[812,813],…}
"""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Sequence

from sonde.cli.trace_hosts import Message, Node
from sonde.cli.trace_plan import Plan
from sonde.errors import UsageError
from sonde.rpc.fanout import Call, fan_out
from sonde.tracing import kineto

_NUMBER = re.compile(r"[0-9]{1,10}")


def arm_dynologs(nodes: Sequence[Node], plan: Plan, session: str, start_ns: int, *, tls: ssl.SSLContext | None) -> None:
    """Each node has what was matched, or an error, afterwards."""
    asked = {node.address: node for node in nodes if node.foreign and node.error is None}
    if not asked:
        return
    options = plan.options._replace(
        log_file=os.path.join(os.path.dirname(plan.options.log_file), f"sonde-{session}.json"),
        start_ms=start_ns // 1_000_000,
    )
    try:
        request = request_of(plan, kineto.config_text(options))
    except UsageError as error:
        for node in asked.values():
            node.error = error
        return
    for outcome in fan_out([Call(address, "setKinetOnDemandRequest", request) for address in asked], tls=tls):
        node = asked[outcome.address]
        if outcome.reply is not None:
            node.matched = matched(outcome.reply, options.log_file)
        else:
            node.error = outcome.error


def request_of(plan: Plan, config: str) -> Message:
    """dynolog chooses by number of job, and by pids in it; it knows no ranks."""
    if "ranks" in plan.choice:
        raise UsageError("it knows no ranks", hint="choose by --job or --pid")
    job = str(plan.choice.get("job", ""))
    number = _NUMBER.match(job)
    if job and number is None:
        raise UsageError(f"it knows jobs by the number of Slurm only, not {job!r}")
    return {
        "config": config,
        "job_id": int(number[0]) if number else 0,
        "pids": plan.choice.get("pids") or [0],
        "process_limit": plan.recording["limit"],
    }


def matched(reply: Message, log_file: str) -> list[Message]:
    """What will come of each process that dynolog has found. It does not say which of them are busy."""
    armed = set(reply.get("activityProfilersTriggered", ()))
    return [
        {
            "pid": pid,
            "state": "armed" if pid in armed else "refused",
            "path": kineto.written_path(log_file, pid) if pid in armed else "",
            "verdict": f"armed, cannot be followed: look for {kineto.written_path(log_file, pid)}"
            if pid in armed
            else "not armed: a request waits already, or there are more than --limit",
        }
        for pid in reply.get("processesMatched", ())
    ]
