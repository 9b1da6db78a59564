"""`trl-ces push` against the stand-in of the Hub."""

from trl_ces.cli.main import main


def push(*words):
    return main(["push", *map(str, words)])
