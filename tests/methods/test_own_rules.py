"""Test token rules defined outside the package: lookup, training, settings, and `check_rule` with broken rules."""

import runpy
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from fixtures_evaluation import write_model
from safetensors.torch import load_file
from tiny import settings

from trl_ces import CESConfig
from trl_ces.cli.main import main
from trl_ces.lab.testing import check_rule
from trl_ces.methods import find_rule
from trl_ces.methods.ces import conditional_entropy_shaping
from trl_ces.methods.rule import Need, Rule, ShapedAdvantages

ROOT = Path(__file__).parents[2]
EXAMPLE = ROOT / "docs" / "examples" / "my_rule.py"


@pytest.fixture
def installed_rule(tmp_path, monkeypatch):
    """Install the example as a package that registers its rule, for this process and its child processes."""
    (tmp_path / "somebodys_rules.py").write_text(EXAMPLE.read_text())
    metadata = tmp_path / "somebodys_rules-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: somebodys-rules\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text("[trl_ces.methods]\ncorrect_entropy = somebodys_rules:rule\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    yield
    sys.modules.pop("somebodys_rules", None)
    find_rule.cache_clear()


def train(tmp_path, shaping, **more):
    (tmp_path / "data.jsonl").write_text('{"question": "1+1=", "answer": "2"}\n' * 4)
    model = tmp_path / "model"
    if not model.exists():
        write_model(model, context=512)
    out = tmp_path / shaping.replace(":", "-")
    fields = {
        "model_name_or_path": model, "dataset_name": tmp_path / "data.jsonl", "output_dir": out, "shaping": shaping,
        "reward_funcs": "accuracy_reward", "num_generations": 2, "responses_per_step": 4, "max_completion_length": 8,
        "max_steps": 1, "learning_rate": 0.01, "use_cpu": "true", "bf16": "false", "report_to": "none", **more,
    }  # fmt: skip
    args = [word for name, value in fields.items() for word in (f"--{name}", str(value))]
    return main(["train", *args]), out


@pytest.mark.slow
def test_an_installed_rule_is_available_by_its_registered_name(installed_rule, tmp_path, capfd):
    check_rule("correct_entropy", {"gamma": 0.5})
    # All completions are incorrect, so the rule changes no advantage and the weights match DAPO.
    code, own = train(tmp_path, "correct_entropy", shaping_kwargs="{gamma: 0.5}")
    assert code == 0
    code, plain = train(tmp_path, "none")
    assert code == 0
    own, plain = (load_file(folder / "model.safetensors") for folder in (own, plain))
    assert all(torch.equal(own[name], value) for name, value in plain.items())
    capfd.readouterr()
    code, _ = train(tmp_path, "somebodys_rules:rule", shaping_kwargs="{gama: 0.5}")
    assert code == 2
    assert "`gama` is 0.5: correct_entropy has no such setting. Did you mean `gamma`?" in capfd.readouterr().err


def test_the_example_rule_computes_its_formula():
    rule = runpy.run_path(str(EXAMPLE))["rule"]
    batch = {
        "advantages": torch.tensor([1.0, -1.0, 0.5]),
        "correct": torch.tensor([True, False, True]),
        "scored": torch.tensor([True, True, False]),
    }
    nats = torch.tensor([[0.6931472, 1.3862944], [0.6931472, 0.0], [0.6931472, 0.0]])  # 1 and 2 bits
    shaped = rule.function(batch, nats, torch.tensor([[1, 0], [1, 1], [1, 1]]), gamma=0.3)
    torch.testing.assert_close(shaped.advantages, torch.tensor([[0.7, 1.0], [-1.0, -1.0], [0.5, 0.5]]))
    assert shaped.selected.tolist() == [[True, False], [False, False], [False, False]]


@pytest.mark.parametrize(
    ("shaping", "sentence"),
    [
        ("cess", "Did you mean `ces`?"),
        ("math:pi", "`shaping` is 'math:pi', which refers to a float, not to a trl_ces.methods.rule.Rule."),
        ("math:rule", "math has no 'rule'"),
        ("nowhere.rules:rule", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_a_name_without_a_rule_is_rejected(shaping, sentence):
    with pytest.raises(ValueError, match=sentence.replace("?", r"\?")):
        find_rule(shaping)


@dataclass(frozen=True)
class Settings:
    gamma: float = 0.5


def make_broken_rule(change, needs=(Need.CORRECTNESS,), differentiates="entropies"):
    """Create a rule that passes the result of CES to `change(shaped, batch, nats, mask)`, which returns A' and S_H."""

    def function(batch, entropies_nats, mask, **_):
        shaped = conditional_entropy_shaping(
            batch, entropies_nats, mask, tau=0.1, beta_correct=0.4, beta_incorrect=0.4
        )
        return ShapedAdvantages(*change(shaped, batch, entropies_nats, mask))

    return Rule("broken", "", function, Settings, frozenset(needs), differentiates)


def add_on_selected(shaped, values):
    return torch.where(shaped.selected, shaped.advantages + values, shaped.advantages), shaped.selected


BROKEN = {
    "is 'entropies', but no gradient reaches": lambda s, b, h, m: (s.advantages.detach(), s.selected),
    "differ from A at tokens that are not in `selected`": lambda s, b, h, m: (s.advantages + 0.01 * m, s.selected),
    "A' depends on other rows": lambda s, b, h, m: add_on_selected(s, (s.advantages * s.selected).sum()),
    "A' depends on other rows of": lambda s, b, h, m: add_on_selected(s, b["truncated"].float().mean()),
    "A gradient is not finite": lambda s, b, h, m: add_on_selected(s, h.sqrt()),
    "are not finite": lambda s, b, h, m: (s.advantages + 0 * h.sum(1, True) / m.sum(1, True), s.selected),
    "A' depends on padding or tool output": lambda s, b, h, m: add_on_selected(s, h.sum(1, keepdim=True)),
    "A' depends on the number of columns": lambda s, b, h, m: add_on_selected(s, m.size(1)),
    "padding or tool-output tokens": lambda s, b, h, m: (s.advantages, torch.ones_like(s.selected)),
    "changes 'advantages' in place": lambda s, b, h, m: add_on_selected(s, b["advantages"].mul_(2).mean()),
    r"`advantages` has shape \(8,\)": lambda s, b, h, m: (b["advantages"], m.bool()),
    "`selected` has dtype torch.int64": lambda s, b, h, m: (s.advantages, s.selected.long()),
    "A gradient reaches {'logps'}": lambda s, b, h, m: add_on_selected(s, b["logps"]),
    "No token is selected": lambda s, b, h, m: (s.advantages.detach() * 0, s.selected & False),
    "reads 'corect': the available keys are advantages, .*old_logps": lambda s, b, h, m: b["corect"],
}


@pytest.mark.parametrize("sentence", BROKEN)
def test_a_broken_rule_is_rejected(sentence):
    with pytest.raises(AssertionError, match=sentence):
        check_rule(make_broken_rule(BROKEN[sentence]))


def test_a_rule_must_declare_that_it_reads_correctness():
    with pytest.raises(AssertionError, match=r"reads 'correct': add `Need.CORRECTNESS` to its `needs`"):
        check_rule(make_broken_rule(lambda s, b, h, m: (s.advantages, s.selected), needs=()))


@pytest.mark.parametrize("name", ["ces", "entropy_advantage", "on_policy_sft"])
def test_built_in_rules_pass_the_check(name):
    check_rule(name)
    with pytest.raises(ValueError, match=r"`.*` is .*5"):
        check_rule(name, {"tau": 5})


def test_settings_are_checked():
    def function(batch, entropies_nats, mask, *, gamma):
        return ShapedAdvantages(batch["advantages"].unsqueeze(1) + gamma * mask, mask.bool())

    rule = Rule("with_gamma", "", function, Settings)
    check_rule(rule, {"gamma": 0.2})
    with pytest.raises(ValueError, match="`gamma` is 'much': it must be a number"):
        check_rule(rule, {"gamma": "much"})


def test_the_check_function_of_a_rule_may_reject_settings(tmp_path, monkeypatch):
    source = EXAMPLE.read_text().replace("    settings=Settings,", "    settings=Settings,\n    check=check,")
    check = "\n\ndef check(args, refuse):\n    refuse('gamma', f'it is {args.shaping_settings()}.')\n\n\nrule = Rule("
    (tmp_path / "checked_rule.py").write_text(source.replace("\n\nrule = Rule(", check))
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ValueError, match=r"`gamma` is 0.2: it is \{'gamma': 0.2\}"):
        CESConfig(**settings(tmp_path, shaping="checked_rule:rule", shaping_kwargs={"gamma": 0.2}))
