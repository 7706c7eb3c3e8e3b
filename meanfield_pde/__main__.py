"""``python -m meanfield_pde`` is the command ``meanfield-pde``."""

from __future__ import annotations

import sys

from meanfield_pde.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
