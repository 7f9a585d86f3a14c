"""Recordings in the formats other tools read, one module per family of formats."""
