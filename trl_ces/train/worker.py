"""Training process, started by `trl-ces train` after it has checked the recipe."""

import argparse
import os
import signal
import sys
from pathlib import Path

from ..support.parent import ENDED, REPORTED, end_with_launcher

if __name__ == "__main__":  # before the imports, which take seconds
    end_with_launcher()
    # Until training handles these signals, exit with code 0, because launchers report any other code as an error.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

from ..support.errors import UserError, ignore_deprecations
from .arguments import RESUME
from .recipe import load_recipe
from .run import StoppedTraining, train


def main(args: list[str]) -> int:
    """Train and save the model."""
    ignore_deprecations()
    # Read the environment first, because user code may change it.
    error_file, rank = os.environ.get(REPORTED), os.environ.get("LOCAL_RANK", "0")
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--expect_processes", type=int, default=1)
    parser.add_argument("--expect_distributed_type")
    parser.add_argument("--recipe", required=True)
    parser.add_argument(f"--{RESUME}")
    options = parser.parse_args(args)
    checkpoint = getattr(options, RESUME)
    try:
        recipe = load_recipe(options.recipe, {RESUME: [checkpoint]} if checkpoint else {})
        train(recipe, options.expect_processes, options.expect_distributed_type)
    except (UserError, SystemExit) as error:
        if isinstance(error, SystemExit):
            error = StoppedTraining(f"`sys.exit({error.code!r})` was called before the model was saved.")
        if rank == "0" or isinstance(error, StoppedTraining):
            print(f"trl-ces train: error: {error}", file=sys.stderr, flush=True)
            if error_file is not None:
                Path(error_file).touch()
        return 2
    if error_file is not None:
        Path(error_file).with_name(ENDED).touch()
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code:
        sys.exit(code)
