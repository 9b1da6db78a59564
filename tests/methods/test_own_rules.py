"""A token rule from outside the package: found, checked, trained; and each way in which one can be broken."""

import runpy
import subprocess
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
from trl_ces.lab.rule_check import RuleError, check_rule
from trl_ces.methods import ces
from trl_ces.methods.rule import Need, Rule, ShapedAdvantages, built_in, find_rule

EXAMPLE = Path(__file__).parents[2] / "docs" / "examples" / "my_rule.py"
PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[project]
name = "somebodys-rules"
version = "1.0"
[project.entry-points."trl_ces.methods"]
correct_entropy = "somebodys_rules:rule"
"""

COPY = """
from dataclasses import dataclass, replace
from trl_ces.methods import ces, rule

@dataclass(frozen=True)
class Settings:
    gamma: float = rule.setting(0.5, "Advantage per bit.")

def check(args, refuse):
    if args.shaping_settings()["gamma"] > 1:
        refuse("gamma", "it is at most 1.")

rule = replace(ces.rule, settings=Settings, check=check)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A package of one file, the example, installed by pip where the tests' Python does not look."""
    source, place = (tmp_path_factory.mktemp(name) for name in ("source", "place"))
    (source / "pyproject.toml").write_text(PROJECT)
    (source / "somebodys_rules.py").write_text(EXAMPLE.read_text())
    words = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--target", str(place)]
    subprocess.run([sys.executable, "-m", "pip", *words, str(source)], check=True, capture_output=True)
    return place


@pytest.fixture
def site(installed, monkeypatch):
    """The package on Python's path, here and in training processes."""
    monkeypatch.syspath_prepend(str(installed))
    root = Path(__file__).parents[2]
    monkeypatch.setenv("PYTHONPATH", f"{installed}:{root}")
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
    words = [word for name, value in fields.items() for word in (f"--{name}", str(value))]
    return main(["train", *words]), out


def test_a_rule_installed_by_pip_is_checked_and_trained_by_its_registered_name(site, tmp_path, capfd):
    assert main(["check", "correct_entropy"]) == 0
    said = capfd.readouterr().out
    assert "correct_entropy: gradients reach the entropies\n" in said
    assert "correct_entropy: the arrangement of rows and the number of processes change nothing\n" in said
    # all wrong, so that its price is 0 everywhere and the weights are DAPO's
    code, ours = train(tmp_path, "correct_entropy", shaping_kwargs="{gamma: 0.5}")
    assert code == 0
    code, plain = train(tmp_path, "none")
    assert code == 0
    ours, plain = (load_file(folder / "model.safetensors") for folder in (ours, plain))
    assert all(torch.equal(ours[name], value) for name, value in plain.items())
    code, _ = train(tmp_path, "somebodys_rules:rule", shaping_kwargs="{gama: 0.5}")
    assert code == 2
    assert "`gama` is 0.5: correct_entropy has no such setting. Did you mean `gamma`?" in capfd.readouterr().err


def test_the_example_is_right_by_hand():
    rule = runpy.run_path(str(EXAMPLE))["rule"]
    batch = {
        "advantages": torch.tensor([1.0, -1.0, 0.5]),
        "correct": torch.tensor([True, False, True]),
        "scored": torch.tensor([True, True, False]),
    }
    nats = torch.tensor([[0.6931472, 1.3862944], [0.6931472, 0.0], [0.6931472, 0.0]])  # 1 and 2 bits
    mask = torch.tensor([[1, 0], [1, 1], [1, 1]])
    shaped = rule.function(batch, nats, mask, gamma=0.3)
    torch.testing.assert_close(shaped.advantages, torch.tensor([[0.7, 1.0], [-1.0, -1.0], [0.5, 0.5]]))
    assert shaped.selected.tolist() == [[True, False], [False, False], [False, False]]


@pytest.mark.parametrize("name", built_in())
def test_the_rules_of_the_package_pass(name):
    assert len(list(check_rule(find_rule(name), {}))) == 5


@pytest.mark.parametrize(
    ("shaping", "sentence"),
    [
        ("correct_entropyy", f"choose one of {', '.join(map(repr, built_in()))}, 'none'"),
        ("math:pi", "`shaping` is 'math:pi', which is a float, not a trl_ces.methods.rule.Rule."),
        ("math:rule", "math has no 'rule'"),
        ("nowhere.rules:rule", "cannot be imported: No module named 'nowhere'"),
    ],
)
def test_what_is_no_rule_is_said(shaping, sentence):
    with pytest.raises(ValueError) as refusal:
        find_rule(shaping)
    assert sentence in str(refusal.value)


def shaped_ces(batch, entropies_nats, mask, **settings):
    return ces.conditional_entropy_shaping(batch, entropies_nats, mask, **settings)


def detached(batch, entropies_nats, mask, **settings):
    return shaped_ces(batch, entropies_nats.detach(), mask, **settings)


def everywhere(batch, entropies_nats, mask, **settings):
    shaped = shaped_ces(batch, entropies_nats, mask, **settings)
    return ShapedAdvantages(shaped.advantages + 0.01 * mask, shaped.selected)


def coupled(batch, entropies_nats, mask, **settings):
    shaped = shaped_ces(batch, entropies_nats, mask, **settings)
    mean = (shaped.advantages * shaped.selected).sum() / shaped.selected.sum()
    return ShapedAdvantages(torch.where(shaped.selected, shaped.advantages - mean, shaped.advantages), shaped.selected)


def unmasked(batch, entropies_nats, mask, **settings):
    return shaped_ces(batch, entropies_nats + entropies_nats.sum(dim=1, keepdim=True), mask, **settings)


def by_width(batch, entropies_nats, mask, **settings):
    return shaped_ces(batch, entropies_nats * mask.size(1), mask, **settings)


def on_padding(batch, entropies_nats, mask, **settings):
    shaped = shaped_ces(batch, entropies_nats, mask, **settings)
    return ShapedAdvantages(shaped.advantages, torch.ones_like(shaped.selected))


def in_place(batch, entropies_nats, mask, **settings):
    batch["advantages"].mul_(2)
    return shaped_ces(batch, entropies_nats, mask, **settings)


def root(batch, entropies_nats, mask, **settings):
    selected = mask.bool() & batch["correct"].unsqueeze(1)  # NaN times the mask's 0 is NaN
    shaped = batch["advantages"].unsqueeze(1) - torch.where(selected, entropies_nats.sqrt(), 0.0)
    return ShapedAdvantages(shaped, selected)


def by_mean(batch, entropies_nats, mask, **settings):
    selected = mask.bool() & batch["correct"].unsqueeze(1)
    mean = (entropies_nats * mask).sum(1) / mask.sum(1)  # a row that is left out has no token
    return ShapedAdvantages((batch["advantages"] - mean).unsqueeze(1) * selected, selected)


def by_mean_of(name, batch, entropies_nats, mask, **settings):
    shaped = shaped_ces(batch, entropies_nats, mask, **settings)
    change = batch[name].float().mean() * shaped.selected
    return ShapedAdvantages(shaped.advantages + change, shaped.selected)


def by_truncated(*inputs, **settings):
    return by_mean_of("truncated", *inputs, **settings)


def by_equal_rewards(*inputs, **settings):
    return by_mean_of("equal_rewards", *inputs, **settings)


def of_rows(batch, entropies_nats, mask, **settings):
    return ShapedAdvantages(batch["advantages"], mask.bool())


def with_logps(batch, entropies_nats, mask, **settings):
    shaped = shaped_ces(batch, entropies_nats, mask, **settings)
    return ShapedAdvantages(shaped.advantages + torch.where(shaped.selected, batch["logps"], 0.0), shaped.selected)


@pytest.mark.parametrize(
    ("function", "sentence"),
    [
        (detached, "declares a gradient through the entropies, and none reaches them"),
        (everywhere, "tokens that `selected` does not name"),
        (coupled, "couples the rows of a micro-batch"),
        (by_truncated, "couples the rows of a micro-batch"),
        (by_equal_rewards, "couples the rows of a micro-batch"),
        (root, "has a gradient that is not finite"),
        (by_mean, "returns an A' that is not finite"),
        (unmasked, "reads what the mask hides"),
        (by_width, "depends on the number of padding columns"),
        (on_padding, "selects tokens that are not in the loss"),
        (in_place, "changes 'advantages' in place"),
        (of_rows, "returns `advantages` and `selected` of shapes (8,) and (8, 640)"),
        (with_logps, "lets a gradient through the logps that `differentiates` does not declare"),
    ],
)
def test_a_broken_rule_is_refused_by_its_own_sentence(function, sentence):
    broken = Rule("broken", "", function, ces.Settings, frozenset({Need.CORRECTNESS}), "entropies")
    with pytest.raises(RuleError) as refusal:
        list(check_rule(broken, {}))
    assert sentence in str(refusal.value)


def test_verdicts_are_for_rules_that_ask_for_them():
    greedy = Rule("greedy", "", shaped_ces, ces.Settings, frozenset(), "entropies")
    typo = Rule("typo", "", lambda batch, *_, **__: batch["corect"], ces.Settings, frozenset(), "entropies")
    with pytest.raises(RuleError, match=r"reads 'corect', which no batch has: it has advantages, .*old_logps"):
        list(check_rule(typo, {}))
    with pytest.raises(RuleError, match=r"reads 'correct': that takes `Need.CORRECTNESS`"):
        list(check_rule(greedy, {}))


def test_a_setting_may_be_a_plain_field_and_a_setting_of_the_run():
    @dataclass(frozen=True)
    class Settings:
        gamma: float = 0.5

    def priced(batch, entropies_nats, mask, *, gamma, temperature):
        shaped = batch["advantages"].unsqueeze(1) + gamma * temperature * mask
        return ShapedAdvantages(shaped, mask.bool())

    rule = Rule("priced", "", priced, Settings, given=lambda args: {"temperature": args.temperature})
    assert len(list(check_rule(rule, {"gamma": 0.2}))) == 5
    with pytest.raises(RuleError, match="`gamma` is 'much': it must be a number"):
        list(check_rule(rule, {"gamma": "much"}))


def test_a_copy_of_a_rule_that_keeps_its_name_has_settings_of_its_own(tmp_path, monkeypatch):
    (tmp_path / "my_copy.py").write_text(COPY)
    monkeypatch.syspath_prepend(tmp_path)
    config = CESConfig(**settings(tmp_path, shaping="my_copy:rule", shaping_kwargs={"gamma": 0.1}))
    assert config.shaping_settings() == {"gamma": 0.1}
    with pytest.raises(ValueError, match="`gamma` is 2: it is at most 1"):
        CESConfig(**settings(tmp_path, shaping="my_copy:rule", shaping_kwargs={"gamma": 2}))


def test_settings_that_select_nothing_check_nothing(capsys):
    assert main(["check", "ces", "--shaping_kwargs", "{tau: 0}"]) == 2
    assert "ces selects no token of the sample" in capsys.readouterr().err


def test_settings_are_for_rules_of_ones_own(tmp_path, capsys):
    code, _ = train(tmp_path, "ces", shaping_kwargs="{tau: 0.2}")
    assert code == 2
    assert "those of this package have fields of their own" in capsys.readouterr().err
