"""Worker: a process of a sweep: a run a line comes in, its record a line goes out.

Where there is none, the line says what went wrong.
"""

import functools
import json
import os
import sys
from typing import Any

from headwise.errors import HeadwiseError
from headwise.sweeps.runs import Run, RunRecord, train_run
from headwise.sweeps.settings import SweepSettings
from headwise.sweeps.variants import Variant


def main() -> None:
    """Train until there is nothing more to read."""
    for line in sys.stdin:
        try:
            print(json.dumps(answer(sys.argv[1], json.loads(line))), flush=True)
        except BrokenPipeError:  # nobody listens any more
            os._exit(0)


def answer(held: str, asked: dict[str, Any]) -> RunRecord:
    """The record of one run, or the sentence of the mistake that kept it from being one."""
    run = Run(Variant(**asked["variant"]), asked["rate"], asked["seed"])
    try:
        return train_run(settings_in(held), run)
    except HeadwiseError as error:
        return {"error": str(error)}


@functools.cache
def settings_in(held: str) -> SweepSettings:
    """The settings of a sweep, whose data are read once."""
    return SweepSettings.from_json(json.loads(held))


if __name__ == "__main__":
    main()
