"""Worker: a process of a sweep: a run a line comes in, its record a line goes out."""

import json
import os
import sys

from headwise.sweeps.runs import Run, carry_out
from headwise.sweeps.settings import SweepSettings
from headwise.sweeps.variants import Variant


def main() -> None:
    """Train until there is nothing more to read."""
    settings = SweepSettings.from_json(json.loads(sys.argv[1]))
    for line in sys.stdin:
        asked = json.loads(line)
        run = Run(Variant(**asked["variant"]), asked["rate"], asked["seed"])
        try:
            print(json.dumps(carry_out(settings, run)), flush=True)
        except BrokenPipeError:  # nobody listens any more
            os._exit(0)


if __name__ == "__main__":
    main()
