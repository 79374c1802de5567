"""``python -m trainyard`` is the command line."""

from trainyard.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
