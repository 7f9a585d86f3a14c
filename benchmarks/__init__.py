"""Every bar of the project, measured: `make bench`."""
