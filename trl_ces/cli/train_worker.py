"""Training process, started by `trl-ces train` after it has checked the recipe."""

import argparse
import os
import sys
from pathlib import Path

from ..support.errors import UserError, ignore_deprecations
from ..train.arguments import RESUME
from ..train.launch import REPORTED
from ..train.recipe import load_recipe
from ..train.run import StoppedTraining, train


def main(words: list[str]) -> int:
    """Train and save the model."""
    ignore_deprecations()
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--expect_processes", type=int, default=1)
    parser.add_argument("--expect_distributed_type")
    parser.add_argument("--recipe", required=True)
    parser.add_argument(f"--{RESUME}")
    options = parser.parse_args(words)
    checkpoint = getattr(options, RESUME)
    try:
        recipe = load_recipe(options.recipe, {RESUME: [checkpoint]} if checkpoint else {})
        train(recipe, options.expect_processes, options.expect_distributed_type)
    except UserError as error:
        if os.environ.get("RANK", "0") == "0" or isinstance(error, StoppedTraining):
            print(f"trl-ces train: error: {error}", file=sys.stderr, flush=True)
            if REPORTED in os.environ:
                Path(os.environ[REPORTED]).touch()
        return 2
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code:
        sys.exit(code)
