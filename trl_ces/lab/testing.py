"""Check custom token rules; for example, call `check_rule("my_package.rules:my_rule")` in a test."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NoReturn

import torch
from torch import Tensor

from ..config import CESConfig
from ..methods import find_rule
from ..methods.rule import Need, Rule, ShapedAdvantages

SEEDS, ROWS, TOKENS = 3, 8, 640  # number of micro-batches; number of rows and tokens in each
CORRECTNESS = ("correct", "scored", "group_correct", "group_scored", "equal_rewards", "truncated")
BoundRule = Callable[[dict[str, Tensor]], ShapedAdvantages]


def check_rule(rule: Rule | str, settings: Mapping[str, Any] | None = None) -> None:
    """
    Check on random micro-batches that a token rule meets the requirements of [`Rule`].

    The trainer removes padding, packs and reorders rows, splits micro-batches and distributes them over processes.
    These operations do not change training if the advantages A' of a row depend only on the loss tokens of that row.

    Args:
        rule ([`Rule`] or `str`): The rule, or its name or path as in `shaping`.
        settings (`Mapping[str, Any]`, *optional*): Settings of a custom rule, as in `shaping_kwargs`.

    Raises `AssertionError` if the rule violates a requirement, and `ValueError` if the rule is unknown or a setting is
    invalid.
    """
    resolved, values = find_rule(rule) if isinstance(rule, str) else rule, dict(settings or {})
    assert resolved is not None, f"{rule!r} is not a token rule."

    def reject(name: str, reason: str) -> NoReturn:
        raise ValueError(f"`{name}` is {values.get(name)!r}: {reason}")

    built_in = {name: getattr(CESConfig, f"{resolved.name}_{name}") for name in resolved.config_fields}
    if built_in and values:
        raise ValueError(f"`settings` is {values}, but {resolved.name} is checked with its defaults: omit `settings`.")
    run = partial(_run, resolved, built_in or resolved.read_settings(values, reject))
    for inputs in map(_micro_batch, range(SEEDS)):
        _check_result(run(inputs), inputs)
        _check_gradients(run, inputs, resolved.differentiates)
        _check_independence(run, inputs)


def _micro_batch(seed: int) -> dict[str, Tensor]:
    """Return two groups of four rows: row 1 is not in the loss, row 2 has tool output, and row 7 is unscored."""
    generator = torch.Generator().manual_seed(seed)
    lengths = TOKENS * (0.5 + 0.4 * torch.rand(ROWS, 1, generator=generator))
    mask = (torch.arange(TOKENS) < lengths).long()
    mask[1], mask[2, 40:60] = 0, 0  # row 1: `mask_truncated_completions`; row 2: tool output
    correct = torch.tensor([True, True, True, False, False, True, False, False])
    logps = -3 * torch.rand(ROWS, TOKENS, generator=generator)
    return {
        "advantages": torch.where(correct, 0.7, -0.9) * torch.linspace(0.5, 1.5, ROWS),
        "correct": correct,
        "scored": torch.arange(ROWS) < 7,
        "group_correct": torch.tensor([3, 3, 3, 3, 1, 1, 1, 1]),
        "group_scored": torch.tensor([4, 4, 4, 4, 3, 3, 3, 3]),
        "equal_rewards": torch.arange(ROWS) >= 4,
        "truncated": torch.arange(ROWS) == 1,
        "logps": logps,
        "old_logps": logps + 0.05 * torch.randn(ROWS, TOKENS, generator=generator),
        "entropies": 2 * torch.rand(ROWS, TOKENS, generator=generator) * mask,
        "mask": mask,
    }


def _run(rule: Rule, arguments: dict[str, Any], inputs: dict[str, Tensor]) -> ShapedAdvantages:
    """Call the rule with the tensors that its `needs` declares."""
    excluded = ("entropies", "mask", *(() if Need.CORRECTNESS in rule.needs else CORRECTNESS))
    batch = {name: values for name, values in inputs.items() if name not in excluded}
    before = {name: values.clone() for name, values in inputs.items()}
    try:
        shaped = rule.function(batch, inputs["entropies"], inputs["mask"], **arguments)
    except KeyError as error:
        name = error.args[0]
        hint = (
            "add `Need.CORRECTNESS` to its `needs`"
            if name in CORRECTNESS
            else f"the available keys are {', '.join(batch)}"
        )
        raise AssertionError(f"The rule reads {name!r}: {hint}.") from error
    changed = [name for name, values in inputs.items() if not torch.equal(values, before[name])]
    assert not changed, f"The rule changes {changed[0]!r} in place, but TRL uses this tensor again: change a copy."
    return shaped


def _check_result(shaped: ShapedAdvantages, inputs: dict[str, Tensor]) -> None:
    """Check types, shapes and values."""
    mask, kind = inputs["mask"].bool(), type(shaped).__name__
    assert isinstance(shaped, ShapedAdvantages), f"The rule returns {kind} instead of ShapedAdvantages."
    for name, dtype in {"advantages": torch.float32, "selected": torch.bool}.items():
        values = getattr(shaped, name)
        assert values.shape == mask.shape, f"`{name}` has shape {tuple(values.shape)}, expected {tuple(mask.shape)}."
        assert values.dtype == dtype, f"`{name}` has dtype {values.dtype}, expected {dtype}."
    assert shaped.advantages.isfinite().all(), (
        "`advantages` are not finite: return finite values at all tokens, including masked tokens."
    )
    assert not (shaped.selected & ~mask).any(), "`selected` includes padding or tool-output tokens: exclude them."
    assert shaped.selected.any(), "No token is selected, so nothing can be checked: use settings that select tokens."
    changed = (shaped.advantages != inputs["advantages"].unsqueeze(1)) & mask & ~shaped.selected
    assert not changed.any(), "`advantages` differ from A at tokens that are not in `selected`: select these tokens."


def _check_gradients(run: BoundRule, inputs: dict[str, Tensor], differentiates: str | None) -> None:
    """Check that gradients reach the tensor that `differentiates` declares, and no other tensor."""
    leaves = {name: inputs[name].clone().requires_grad_() for name in ("entropies", "logps", "advantages")}
    advantages, reached = run({**inputs, **leaves}).advantages, set()
    if advantages.requires_grad:
        weights = torch.linspace(0.5, 1.5, TOKENS) * inputs["mask"]  # unequal, because a rule may preserve sums
        gradients = torch.autograd.grad((advantages * weights).sum(), list(leaves.values()), materialize_grads=True)
        assert all(grad.isfinite().all() for grad in gradients), "A gradient is not finite (for example, sqrt at 0)."
        reached = {name for name, gradient in zip(leaves, gradients, strict=True) if gradient.any()}
    declared, reached = {differentiates} - {None}, reached - {"advantages"}
    assert declared <= reached, f"`differentiates` is {differentiates!r}, but no gradient reaches these values."
    assert reached <= declared, f"A gradient reaches {reached - declared}, which `differentiates` does not declare."


def _check_independence(run: BoundRule, inputs: dict[str, Tensor]) -> None:
    """Check that a row's A' does not depend on padding, tool output, other rows or their order."""
    shaped, rows = run(inputs), list(range(ROWS))
    masked, longest = inputs["mask"] == 0, int(inputs["mask"].any(dim=0).nonzero().max()) + 1
    per_token = {name: values for name, values in inputs.items() if values.dim() == 2}
    garbage = {name: values.masked_fill(masked, 50.0) for name, values in per_token.items() if name != "mask"}
    trimmed = {name: values[:, :longest] for name, values in per_token.items()}
    variants = [(rows, inputs | garbage, "padding or tool output"), (rows, inputs | trimmed, "the number of columns")]
    for part in (*([row] for row in rows), rows[::-1]):
        part_inputs = {name: values[part] for name, values in inputs.items()}
        variants.append((part, part_inputs, "other rows of the micro-batch or their order, which vary between setups"))
    for part, part_inputs, cause in variants:
        other, mask = run(part_inputs), part_inputs["mask"].bool()
        advantages, selected = (values[part, : mask.size(1)] for values in (shaped.advantages, shaped.selected))
        assert torch.equal(other.selected & mask, selected & mask), f"`selected` depends on {cause}."
        close = torch.allclose(other.advantages[mask], advantages[mask], atol=1e-6, rtol=0)
        assert close, f"A' depends on {cause}."
