#!/usr/bin/env python3
"""Multiply two square matrices, with nothing but Python: something to record.

    python3 matmul.py [SIZE]        mpirun -np 2 python3 matmul.py 300

Under mpirun or srun each rank multiplies its own share of the rows.
"""

import os
import random
import sys
import time

RANK = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID")
SIZE = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS")


def first(names, default):
    return next((int(os.environ[name]) for name in names if os.environ.get(name, "").isdigit()), default)


def main():
    size = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    rank, ranks = first(RANK, 0), first(SIZE, 1)
    numbers = random.Random(rank)
    left = [[numbers.random() for _ in range(size)] for _ in range(rank, size, ranks)]
    columns = [[numbers.random() for _ in range(size)] for _ in range(size)]
    begun = time.monotonic()
    total = sum(sum(a * b for a, b in zip(row, column, strict=True)) for row in left for column in columns)
    print(f"rank {rank} of {ranks}: {len(left)} rows, sum {total:.1f}, {time.monotonic() - begun:.1f} s")


if __name__ == "__main__":
    main()
