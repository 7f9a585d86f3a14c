"""ska-sdp-perfmon's language: its command line, its files, its names."""
