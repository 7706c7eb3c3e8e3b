"""``python -m meanfield_pde`` is the command ``meanfield-pde``."""

from __future__ import annotations

import sys

INTERRUPTED = 130


def main() -> int:
    """The command line; an interrupt while it is still being loaded is an interrupt, not a traceback."""
    try:
        from meanfield_pde.cli.main import main as command
    except KeyboardInterrupt:
        return INTERRUPTED
    return command()


if __name__ == "__main__":
    sys.exit(main())
