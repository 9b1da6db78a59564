"""One training process of `trl-ces train`, which has checked the recipe already. Joins training and Hub."""

import argparse
import os
import sys
from pathlib import Path

from ..hub import Publisher, save_and_publish
from ..support.errors import UserError
from ..train.command_line import read_words
from ..train.launch import SAID
from ..train.recipe import load_recipe
from ..train.run import StoppedTraining, train


def main(words: list[str]) -> int:
    """
    Trains, and saves the model.

    Args:
        words (`list[str]`):
            `--expect_processes N [--expect_distributed_type T]`, the recipe and its overrides.

    Returns:
        `int`: 0, or 2 if something that only shows here is refused, such as a data set of the Hub.
    """
    parser = argparse.ArgumentParser(allow_abbrev=False, add_help=False)
    parser.add_argument("--expect_processes", type=int, default=1)
    parser.add_argument("--expect_distributed_type")
    expected, rest = parser.parse_known_args(words)
    line = read_words(rest)
    try:
        recipe = load_recipe(line.config, line.overrides)
        train(recipe, expected.expect_processes, expected.expect_distributed_type, Publisher, save_and_publish)
    except UserError as error:
        if os.environ.get("RANK", "0") == "0" or isinstance(error, StoppedTraining):
            print(f"trl-ces train: error: {error}", file=sys.stderr, flush=True)
            if SAID in os.environ:
                Path(os.environ[SAID]).touch()
        return 2
    return 0


if __name__ == "__main__":
    code = main(sys.argv[1:])
    if code:
        sys.exit(code)
