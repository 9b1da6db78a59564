"""`trl-ces check`: tries a token rule before it is trained."""

from ...cli.parser import Parser
from ...support.errors import UserError
from ...support.yaml import parse_yaml


def run(argv: list[str]) -> int:
    parser = Parser(
        "check",
        usage="trl-ces check RULE [--shaping_kwargs YAML]",
        description="Try a token rule on a made-up micro-batch: do gradients reach what they should, does padding,\n"
        "the arrangement of rows or the number of processes change anything, does A stay where nothing\n"
        "is selected, and what does it cost?",
        epilog="  trl-ces check my_package.rules:my_rule --shaping_kwargs '{gamma: 0.2}'",
    )
    parser.add_argument("rule", help="as in `shaping`: a path, or a rule's name")
    parser.add_argument("--shaping_kwargs", default="{}", metavar="YAML", help="its settings, a mapping")
    options = parser.parse_args(argv or ["--help"])
    given = options.shaping_kwargs
    settings = parse_yaml(given)
    if not isinstance(settings, dict):
        raise UserError(f"`--shaping_kwargs` is {given!r}: write a mapping, such as '{{gamma: 0.2}}'.")

    from ...methods.rule import find_rule  # loads torch, which takes seconds
    from ..rule_check import RuleError, check_rule

    try:
        rule = find_rule(options.rule)
    except ValueError as error:
        raise UserError(str(error)) from None
    if rule is None:
        raise UserError("`none` is no rule: name one.")
    try:
        for line in check_rule(rule, settings):
            print(f"{rule.name}: {line}")
    except RuleError as error:
        raise UserError(f"{rule.name} {error}") from None
    return 0
