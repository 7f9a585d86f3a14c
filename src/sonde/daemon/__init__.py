"""The node daemon: composition, signals, health."""
