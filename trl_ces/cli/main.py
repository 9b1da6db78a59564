"""Entry point of `trl-ces`: run a subcommand; print a `UserError` without a traceback and return exit code 2."""

import importlib
import os
import select
import signal
import sys

from ..support.errors import UserError, ignore_deprecations, nearest

# Help texts by subcommand. Each subcommand is a module with `run(argv) -> int`, which is imported only when needed.
COMMANDS = {
    "train": "train a model from a recipe",
    "recipes": "list the recipes with their costs, or print one in full",
    "plan": "compute a recipe's steps and memory without a GPU",
    "study": "train several methods with several seeds and compare them",
    "quickstart": "show the effect of CES on a small model on the CPU",
    "inspect": "show a model's high-entropy tokens before training",
    "eval": "measure accuracy and completion length on benchmarks",
    "compare": "compare evaluations in the layout of the paper's Table 1",
    "env": "print versions and devices for a bug report",
}


def main(argv: list[str] | None = None) -> int:
    """Run a subcommand and return its exit code."""
    command, *args = (sys.argv[1:] if argv is None else argv) or ["--help"]
    ignore_deprecations()
    try:
        try:
            code = _run(command, args)
        except SystemExit as end:
            if not isinstance(end.code, int | None):
                raise
            code = end.code or 0  # argparse raises SystemExit
        print(end="", flush=True)  # raise BrokenPipeError here, because at exit Python would print it
        return code
    except UserError as error:
        print(f"trl-ces {command}: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:
        poll = select.poll()
        poll.register(sys.stdout, 0)
        if not poll.poll(0):  # the closed pipe is not stdout
            raise
        # The reader has exited, as in `trl-ces recipes | head`.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt:
        print(f"trl-ces {command}: stopped.", file=sys.stderr)
        return 130


def _run(command: str, args: list[str]) -> int:
    """Print the help text or the version, or run a subcommand."""
    if command in ("-h", "--help", "help"):
        print("usage: trl-ces COMMAND [...]\n\nConditional Entropy Shaping (arXiv 2605.19358) for TRL.\n\ncommands:")
        print("\n".join(f"  {name:<12}{text}" for name, text in COMMANDS.items()))
        print("\nRun `trl-ces COMMAND --help` for help on a command.")
        return 0
    if command in ("-V", "--version"):
        from .. import __version__

        print(f"trl-ces {__version__}")
        return 0
    if command not in COMMANDS:
        raise UserError(f"no such command.{nearest(command, COMMANDS)} `trl-ces --help` lists all commands.")
    return importlib.import_module(f"trl_ces.cli.{command}").run(args)


if __name__ == "__main__":
    raise SystemExit(main())
