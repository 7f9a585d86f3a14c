"""Wheels, deb and rpm of sonde: `make packages`."""
