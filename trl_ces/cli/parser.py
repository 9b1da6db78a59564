"""Argument parser of the subcommands."""

import argparse
import math
import re
from pathlib import Path
from typing import Any, NoReturn

from ..support.errors import UserError
from ..support.hub import expand_home


class Parser(argparse.ArgumentParser):
    """Argument parser that raises `UserError` and rejects abbreviated flags."""

    def __init__(self, command: str, **options: Any):
        formatter = argparse.RawDescriptionHelpFormatter
        super().__init__(prog=f"trl-ces {command}", formatter_class=formatter, allow_abbrev=False, **options)

    def parse_known_args(self, args=None, namespace=None):
        """Treat `--a-b` as `--a_b`, because recipe fields contain underscores."""
        normalized = [
            re.sub(r"^--[^=]+", lambda flag: f"--{flag[0][2:].replace('-', '_')}", word) for word in args or []
        ]
        return super().parse_known_args(normalized, namespace)

    def error(self, message: str) -> NoReturn:
        raise UserError(f"{message[:1].upper()}{message[1:]}. `{self.prog} --help` lists the options.")


def count(word: str) -> int:
    """Parse a whole number of at least 1."""
    if word.isdigit() and int(word) > 0:
        return int(word)
    raise argparse.ArgumentTypeError(f"{word!r} is not a whole number of at least 1")


def positive(word: str) -> float:
    """Parse a finite number above 0."""
    try:
        if 0 < float(word) < math.inf:
            return float(word)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{word!r} is not a finite number above 0")


def number_or_text(word: str) -> float | str:
    """Parse a number, or return the text unchanged if it is not a number."""
    try:
        return float(word)
    except ValueError:
        return word


def path(word: str) -> Path:
    """Parse a path and expand `~`, because shells do not expand `~` in `--out=~/x`."""
    try:
        return Path(expand_home(word))
    except UserError as error:  # argparse would drop the message
        raise argparse.ArgumentTypeError(str(error).rstrip(".")) from None
