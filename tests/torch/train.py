"""A small real training: PyTorch on one core, paced, in as many processes as asked for. Run by PyTorch's own Python.

    {"event": "resting", "pid": 812, "rank": 0}          with --rest: torch is imported, and no step was made yet
    {"event": "training", "pid": 812, "rank": 0}         a process has made its first step
    {"event": "profiling", "pid": 812, "rank": 0}        its own torch.profiler runs; "profiled" when it has ended
    {"event": "ended", "pid": 812, "rank": 0, "steps": 96}

One JSON object per line on standard output, each written at once. Under torchrun, or with RANK and its kin set by
another launcher, a process is one rank; with --ranks it starts them itself. In a trace, `forward 51` is the model's
part of the 51st step.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps-per-second", type=float, default=50.0, help="0: as fast as it goes")
    parser.add_argument("--ranks", type=int, default=0, help="start this many processes that train together (gloo)")
    parser.add_argument("--profiler", type=float, default=0.0, metavar="SECONDS", help="profile itself at first")
    parser.add_argument("--spawn", action="store_true", help="with a child of multiprocessing that trains as well")
    parser.add_argument("--rest", type=float, default=0.0, metavar="SECONDS", help="do nothing before the first step")
    parser.add_argument("--exit-after", type=float, default=600.0, metavar="SECONDS", help="of training")
    args = parser.parse_args()
    if args.ranks and "RANK" not in os.environ:
        return launch(args.ranks)
    if args.spawn:
        alone = argparse.Namespace(**{**vars(args), "spawn": False, "profiler": 0.0})
        multiprocessing.get_context("spawn").Process(target=train, args=(alone,), daemon=True).start()
    train(args)
    return 0


def launch(ranks: int) -> int:
    """Start one process per rank and wait for all; whoever ends this one ends them."""
    with tempfile.TemporaryDirectory() as meeting:
        environ = {**os.environ, "WORLD_SIZE": str(ranks), "TRAIN_MEETING": f"file://{meeting}/store"}
        command = [sys.executable, os.path.abspath(__file__), *sys.argv[1:]]
        children = [
            subprocess.Popen(command, env={**environ, "RANK": str(rank), "LOCAL_RANK": str(rank)})
            for rank in range(ranks)
        ]

        def end(*_: object) -> None:
            for child in children:
                child.kill()  # one that waits for another in gloo takes no other signal

        signal.signal(signal.SIGTERM, end)
        signal.signal(signal.SIGINT, end)
        return max(abs(child.wait()) for child in children)


def say(event: str, **more: object) -> None:
    line = {"event": event, "pid": os.getpid(), "rank": int(os.environ.get("RANK", "0")), **more}
    os.write(1, json.dumps(line).encode() + b"\n")  # one write: lines of several ranks do not mix


def train(args: argparse.Namespace) -> None:
    import torch
    from torch import distributed

    torch.set_num_threads(1)
    together = "RANK" in os.environ
    if together:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        distributed.init_process_group(
            "gloo", init_method=os.environ.get("TRAIN_MEETING", "env://"), rank=rank, world_size=world
        )
    model = torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    if together:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.ones(16, 32)

    def step(number: int) -> None:
        optimizer.zero_grad()
        with torch.profiler.record_function(f"forward {number}"):
            loss = model(inputs).sum()
        loss.backward()
        optimizer.step()

    if args.rest:
        say("resting")
        time.sleep(args.rest)

    steps = repeat(step, args, until=lambda over: agreed(over) if together else over)
    if together:
        distributed.destroy_process_group()
    say("ended", steps=steps)


def agreed(over: bool) -> bool:
    """Is it over for anybody? Asked in every step, so that all ranks make the same number of them."""
    import torch
    from torch import distributed

    vote = torch.tensor([int(over)])
    distributed.all_reduce(vote, op=distributed.ReduceOp.MAX)
    return bool(vote.item())


def repeat(step: Callable[[int], None], args: argparse.Namespace, until: Callable[[bool], bool]) -> int:
    """Make steps at the asked pace until the time is over or the parent has gone; how many they were."""
    parent = os.getppid()
    profiler: Any = None
    begun = time.monotonic()
    steps = 0
    while not until(time.monotonic() - begun > args.exit_after):
        if os.getppid() != parent:
            os._exit(1)  # a test was killed: leave nothing behind
        steps += 1
        step(steps)
        if steps == 1:
            say("training")
            profiler = profiling(args.profiler)
        elif profiler is not None and time.monotonic() - begun > args.profiler:
            profiler.stop()
            profiler = None
            say("profiled")
        if args.steps_per_second:
            time.sleep(max(0.0, begun + steps / args.steps_per_second - time.monotonic()))
    return steps


def profiling(seconds: float) -> Any:
    if not seconds:
        return None
    from torch.profiler import ProfilerActivity, profile

    profiler = profile(activities=[ProfilerActivity.CPU])
    profiler.start()
    say("profiling")
    return profiler


if __name__ == "__main__":
    raise SystemExit(main())
