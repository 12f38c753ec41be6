"""Write the demo's base model to a folder; does nothing when it is there already."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from whetstone_dev.seed.folder import SeedError, place
from whetstone_dev.seed.smollm2 import RECORD, convert


def main(argv: Sequence[str] | None = None) -> int:
    """Parse the command line, make the folder, and return the exit status."""
    parser = argparse.ArgumentParser(prog="python -m whetstone_dev.seed", description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="folder to make, inside the models volume")
    out: Path = parser.parse_args(argv).out
    try:
        made = place(out, RECORD, convert)
    except SeedError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{out}: {RECORD['name']} {'written' if made else 'is there already'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
