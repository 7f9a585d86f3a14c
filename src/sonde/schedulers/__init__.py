"""Batch systems: which job, step, rank and user a process belongs to."""
