"""The command `trl-ces`: runs a sub-command and reports a refusal in one sentence with exit code 2."""

import importlib
import sys

from ..support.errors import UserError, nearest, quiet_others

# Name -> module with `run(argv) -> int`, imported only when called, and its line in `trl-ces --help`.
COMMANDS = {
    "train": ("trl_ces.cli.train", "train a model by a recipe"),
    "recipes": ("trl_ces.cli.recipes", "list the recipes with what they cost, or print one whole"),
    "plan": ("trl_ces.cli.plan", "work out a recipe's steps and memory, before renting a GPU"),
    "study": ("trl_ces.cli.study", "train several methods over several seeds and compare them"),
    "quickstart": ("trl_ces.cli.quickstart", "see the effect of CES on a small model, on this machine's CPU"),
    "inspect": ("trl_ces.cli.inspect", "see a model's forking tokens, before training it"),
    "eval": ("trl_ces.cli.eval", "measure accuracy and completion length on benchmarks"),
    "compare": ("trl_ces.cli.compare", "compare evaluations, as the paper's Table 1 does"),
    "env": ("trl_ces.cli.env", "print versions and devices, for a bug report"),
}


def _help_text() -> str:
    """The commands, each with a line."""
    lines = "\n".join(f"  {name:<12}{text}" for name, (_, text) in COMMANDS.items())
    return (
        "usage: trl-ces COMMAND [...]\n\nConditional Entropy Shaping (arXiv 2605.19358) for TRL.\n\ncommands:\n"
        f"{lines}\n\n`trl-ces COMMAND --help` explains a command."
    )


def main(argv: list[str] | None = None) -> int:
    """Runs a sub-command."""
    words = list(sys.argv[1:] if argv is None else argv)
    quiet_others()
    if not words or words[0] in ("-h", "--help", "help"):
        print(_help_text())
        return 0
    if words[0] in ("-V", "--version"):
        from .. import __version__

        print(f"trl-ces {__version__}")
        return 0
    if words[0] not in COMMANDS:
        hint = nearest(words[0], COMMANDS)
        print(f"trl-ces: error: there is no command {words[0]!r}.{hint} `trl-ces --help` lists them.", file=sys.stderr)
        return 2
    try:
        return importlib.import_module(COMMANDS[words[0]][0]).run(words[1:])
    except UserError as error:
        print(f"trl-ces {words[0]}: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"trl-ces {words[0]}: stopped.", file=sys.stderr)
        return 130


if __name__ == "__main__":
    raise SystemExit(main())
