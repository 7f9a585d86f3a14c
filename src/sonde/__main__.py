"""`python -m sonde` is `sonde`."""

from sonde.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
