"""Traces of live jobs on demand: what is asked for, and what becomes of it in each process."""
