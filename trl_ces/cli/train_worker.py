"""Training process, started by `trl-ces train` after it has checked the recipe."""

import argparse
import os
import sys
from functools import partial
from pathlib import Path

from ..support.errors import UserError, ignore_deprecations
from ..support.parent import end_with_launcher
from ..train.arguments import RESUME
from ..train.launch import ENDED, READY, REPORTED
from ..train.recipe import load_recipe
from ..train.run import StoppedTraining, train


def main(words: list[str]) -> int:
    """Train and save the model."""
    ignore_deprecations()
    # Read now: the user's code may change the environment.
    reported, rank = os.environ.get(REPORTED), os.environ.get("RANK", "0")
    is_local_main = os.environ.get("LOCAL_RANK", "0") == "0"

    def report(name: str, text: str = "") -> None:
        if reported is not None:
            Path(reported).with_name(name).write_text(text)

    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--expect_processes", type=int, default=1)
    parser.add_argument("--expect_distributed_type")
    parser.add_argument("--recipe", required=True)
    parser.add_argument(f"--{RESUME}")
    options = parser.parse_args(words)
    checkpoint = getattr(options, RESUME)
    try:
        recipe = load_recipe(options.recipe, {RESUME: [checkpoint]} if checkpoint else {})
        code = train(recipe, options.expect_processes, options.expect_distributed_type, partial(report, READY))
    except (UserError, SystemExit) as error:
        if isinstance(error, SystemExit):
            error = StoppedTraining(f"`sys.exit({error.code!r})` was called before the model was saved: remove it.")
        if rank == "0" or isinstance(error, StoppedTraining):
            print(f"trl-ces train: error: {error}", file=sys.stderr, flush=True)
            report(Path(reported or "").name)
        return 2
    if is_local_main:
        report(ENDED, str(code))
    return 0  # the launcher of several processes would report another code as a failure


if __name__ == "__main__":
    end_with_launcher()
    code = main(sys.argv[1:])
    if code:
        sys.exit(code)
