"""Interfaces of the kernel and of vendors' libraries that take C structures; no metric has its name here."""
