"""Tries a token rule on a made-up micro-batch: does it keep what the trainer takes for granted? `trl-ces check`.

The trainer cuts padding off, packs rows, places them by length, splits micro-batches and shares them over processes.
A rule may be trained under all of that if A' of a row depends on the row alone, on real tokens alone, and carries the
gradients that the rule declares.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..config import CESConfig
from ..methods import find_rule
from ..methods.groups import group_counts
from ..methods.rule import Need, Rule, ShapedAdvantages

ROWS, GROUP, TOKENS = 8, 4, 640
TOLERANCE = 1e-6
TIMED_TOKENS, TIMES = 4096, 15

Inputs = dict[str, Tensor]
Run = Callable[..., ShapedAdvantages]  # of inputs, and a seed


class RuleError(ValueError):
    """What a rule does that the trainer cannot train as it is meant."""


def sample(tokens: int = TOKENS, seed: int = 0) -> Inputs:
    """What the trainer gives a rule: two groups, tool output within a row, a row that is left out, one unscored."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.linspace(0.5, 0.9, ROWS) * tokens
    mask = (torch.arange(tokens) < lengths.unsqueeze(1)).long()
    mask[1], mask[2, 40:60] = 0, 0  # by `mask_truncated_completions`; tool output
    correct = torch.tensor([1, 1, 1, 0, 0, 1, 0, 0], dtype=torch.bool)
    scored = torch.ones(ROWS, dtype=torch.bool)
    scored[7] = False
    group_correct, group_scored = group_counts(correct, scored, GROUP)
    logps = -3 * torch.rand(ROWS, tokens, generator=generator)
    return {
        "advantages": torch.where(correct, 0.7, -0.9) * torch.linspace(0.5, 1.5, ROWS),
        "correct": correct,
        "scored": scored,
        "group_correct": group_correct,
        "group_scored": group_scored,
        "equal_rewards": torch.arange(ROWS) >= GROUP,
        "truncated": torch.arange(ROWS) == 1,
        "logps": logps,
        "old_logps": logps + 0.05 * torch.randn(ROWS, tokens, generator=generator),
        "entropies": 2 * torch.rand(ROWS, tokens, generator=generator) * mask,
        "mask": mask,
    }


VERDICTS = ("correct", "scored", "group_correct", "group_scored", "equal_rewards", "truncated")


def check_rule(rule: Rule, settings: Mapping[str, Any]) -> Iterator[str]:
    """Tries a rule with these settings, and yields what was found; a broken promise is a [`RuleError`]."""
    run = _runner(rule, settings)
    inputs = sample()
    shaped = run(inputs)
    mask = inputs["mask"].bool()
    _check_result(shaped, inputs, mask)
    yield f"selects {int(shaped.selected.sum())} of {int(mask.sum())} tokens, and A stays at the others"
    yield _check_gradients(rule, run, inputs)
    hidden = _hidden_changed(inputs)
    _compare(run(hidden), shaped, mask, "reads what the mask hides, padding or tool output: use `mask`.")
    yield "padding and tool output change nothing" + _check_width(run, inputs, shaped, mask)
    yield _check_rows(rule, run, inputs, shaped, mask)
    yield _cost(run)


def _check_width(run: Run, inputs: Inputs, shaped: ShapedAdvantages, mask: Tensor) -> str:
    """The same rows without their common padding; draws are made for the width, so a rule that draws differs there."""
    if not torch.equal(run(inputs, seed=1).selected, shaped.selected):
        return "; tokens are drawn at random"
    longest = int((mask * torch.arange(1, TOKENS + 1)).max())
    trimmed = {name: values[:, :longest] if values.dim() == 2 else values for name, values in inputs.items()}
    of_trimmed = ShapedAdvantages(shaped.advantages[:, :longest], shaped.selected[:, :longest])
    _compare(run(trimmed), of_trimmed, mask[:, :longest], "depends on the number of padding columns: use `mask`.")
    return ""


def _runner(rule: Rule, settings: Mapping[str, Any]) -> Run:
    def refuse(name: str, why: str) -> NoReturn:
        raise RuleError(f"`{name}` is {settings.get(name)!r}: {why}")

    of_run = rule.given(CESConfig) if rule.given is not None else {}  # from the class, which has the defaults
    arguments = rule.read(settings, refuse) | of_run
    if rule.control is not None:
        arguments["state"] = {}
    unseen = () if Need.VERDICTS in rule.needs else VERDICTS

    def run(inputs: Inputs, seed: int = 0) -> ShapedAdvantages:
        batch = {name: values for name, values in inputs.items() if name not in (*unseen, "entropies", "mask")}
        before = {name: values.clone() for name, values in inputs.items()}
        torch.manual_seed(seed)
        try:
            shaped = rule.function(batch, inputs["entropies"], inputs["mask"], **arguments)
        except KeyError as error:
            if error.args[0] not in VERDICTS:
                raise RuleError(f"reads {error.args[0]!r}, which no batch has: it has {', '.join(batch)}.") from error
            raise RuleError(f"reads {error.args[0]!r}: that takes `Need.VERDICTS` in its `needs`.") from error
        for name, values in inputs.items():
            if not torch.equal(values, before[name]):
                raise RuleError(f"changes {name!r} in place, which TRL uses again: work on a copy.")
        return shaped

    return run


def _check_result(shaped: Any, inputs: Inputs, mask: Tensor) -> None:
    shape = tuple(mask.shape)
    if not isinstance(shaped, ShapedAdvantages):
        raise RuleError(f"returns a {type(shaped).__name__}: return ShapedAdvantages.")
    if shaped.advantages.shape != mask.shape or shaped.selected.shape != mask.shape:
        found = tuple(shaped.advantages.shape), tuple(shaped.selected.shape)
        raise RuleError(f"returns `advantages` and `selected` of shapes {found[0]} and {found[1]}: make both {shape}.")
    if shaped.selected.dtype != torch.bool:
        raise RuleError(f"returns `selected` as {shaped.selected.dtype}: make it bool.")
    if not shaped.advantages.isfinite().all():
        raise RuleError("returns an A' that is not finite; where the mask is 0 too, the loss would be NaN.")
    if (shaped.selected & ~mask).any():
        raise RuleError("selects tokens that are not in the loss, padding or tool output: use `mask`.")
    if not shaped.selected.any():
        raise RuleError("selects no token of the sample, so nothing can be checked: give settings that select some.")
    kept = mask & ~shaped.selected
    changed = (shaped.advantages != inputs["advantages"].unsqueeze(1)) & kept
    if changed.any():
        raise RuleError(
            f"changes A at {int(changed.sum())} tokens that `selected` does not name, and no metric would count them: "
            "name them, or leave A there as it is."
        )


def _check_gradients(rule: Rule, run: Run, inputs: Inputs) -> str:
    leaves = {name: inputs[name].clone().requires_grad_() for name in ("entropies", "logps", "advantages")}
    shaped = run({**inputs, **leaves})
    reached = set()
    if shaped.advantages.requires_grad:
        weights = torch.linspace(0.5, 1.5, TOKENS) * inputs["mask"]  # uneven: a rule may leave the sum alone
        total = (shaped.advantages * weights).sum()
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        reached = {name for name, of in zip(leaves, found, strict=True) if of is not None and of.any()}
        if not all(of is None or of.isfinite().all() for of in found):
            raise RuleError("has a gradient that is not finite, as that of a root is at an entropy of 0.")
    declared = {rule.differentiates} - {None}
    missing, further = declared - reached, reached - declared - {"advantages"}
    if missing:
        name = missing.pop()
        raise RuleError(
            f"declares a gradient through the {name}, and none reaches them: they are detached on the way, or "
            "`differentiates` should be None."
        )
    if further:
        raise RuleError(f"lets a gradient through the {further.pop()} that `differentiates` does not declare.")
    return f"gradients reach the {rule.differentiates}" if declared else "no gradient flows through A'"


def _hidden_changed(inputs: Inputs) -> Inputs:
    """The same micro-batch with other values where the mask is 0."""
    hidden = inputs["mask"] == 0
    return {
        name: values.masked_fill(hidden, -50.0 if "logps" in name else 50.0)
        if values.dim() == 2 and name != "mask"
        else values
        for name, values in inputs.items()
    }


def _check_rows(rule: Rule, run: Run, inputs: Inputs, shaped: ShapedAdvantages, mask: Tensor) -> str:
    """Rows alone and in another order, as arrangement, token budgets and more processes place them."""
    if Need.WHOLE_MICRO_BATCHES in rule.needs:
        return "rows of a micro-batch depend on each other, as declared: they stay together, unarranged"
    for rows in (*([row] for row in range(ROWS)), list(reversed(range(ROWS)))):
        expected = ShapedAdvantages(shaped.advantages[rows], shaped.selected[rows])
        _compare(
            run({name: values[rows] for name, values in inputs.items()}),
            expected,
            mask[rows],
            "couples the rows of a micro-batch, so that their arrangement and the number of processes change what is "
            "trained: add `Need.WHOLE_MICRO_BATCHES` to its `needs`.",
        )
    return "the arrangement of rows and the number of processes change nothing"


def _compare(found: ShapedAdvantages, expected: ShapedAdvantages, mask: Tensor, problem: str) -> None:
    same = torch.equal(found.selected & mask, expected.selected & mask)
    if not same or not torch.allclose(found.advantages[mask], expected.advantages[mask], atol=TOLERANCE, rtol=0):
        raise RuleError(problem)


def _cost(run: Run) -> str:
    """Processor time beside that of CES, interleaved."""
    ces = find_rule("ces")
    assert ces is not None
    inputs = sample(TIMED_TOKENS)
    runs = {"it": run, "ces": _runner(ces, {})}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(TIMES):
        for name, one in runs.items():
            begun = time.process_time()
            one(inputs)
            seconds[name].append(time.process_time() - begun)
    its, cess = (1e3 * min(values) for values in seconds.values())
    return f"{ROWS} x {TIMED_TOKENS} tokens cost {its:.1f} ms of processor time; with ces, {cess:.1f}"
