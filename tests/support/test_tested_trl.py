"""Test the warning about TRL versions that differ from the tested versions."""

import inspect
import re
import sys
import tomllib
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet
from packaging.version import Version
from trainers import tiny_trainer, vowel_accuracy_reward
from trl import GRPOTrainer
from trl_fingerprints import used_functions

from trl_ces import CESTrainer
from trl_ces.cli.main import main
from trl_ces.layers import RealTokens
from trl_ces.support import tested_trl
from trl_ces.support.tested_trl import check_trl_version, fingerprint, known_fingerprints

ROOT = Path(__file__).parents[2]
NEWEST = [*known_fingerprints()][-1]
LOSS = inspect.getsource(GRPOTrainer._compute_loss)


@pytest.fixture
def newer_loss(tmp_path):
    """Return a function that loads TRL's `_compute_loss` with one replacement in its code."""

    def load(old, new):
        assert old in LOSS
        file = tmp_path / "newer_trl.py"
        file.write_text("class GRPOTrainer:\n" + LOSS.replace(old, new, 1))
        spec = spec_from_file_location("newer_trl", file)
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        return module.GRPOTrainer._compute_loss

    return load


@pytest.fixture
def changed_trl(monkeypatch, newer_loss):
    """Simulate TRL 1.17.0 with one changed method."""
    monkeypatch.setattr("trl.__version__", "1.17.0")
    monkeypatch.setattr(GRPOTrainer, "_compute_loss", newer_loss("torch.min(", "torch.max("))
    tested_trl.changed_functions.cache_clear()
    yield
    tested_trl.changed_functions.cache_clear()


@pytest.mark.parametrize("trainer_class", [CESTrainer, RealTokens])
def test_a_trainer_warns_about_a_changed_method_and_suggests_a_fix(tmp_path, changed_trl, trainer_class):
    message = (
        f"trl 1.17.0 differs from all tested versions ({', '.join(known_fingerprints())}) in functions that "
        f"CESTrainer overrides or calls: GRPOTrainer._compute_loss. Results may differ. Run "
        f"`pip install trl=={NEWEST}`, or test the latest TRL with `make test-upgrades UPGRADES=latest` in a "
        "checkout of trl_ces."
    )
    with pytest.warns(UserWarning, match=re.escape(message)):
        tiny_trainer(tmp_path, vowel_accuracy_reward, trainer_class=trainer_class)


def test_env_lists_the_changed_method(changed_trl, capsys):
    assert main(["env"]) == 0
    assert "- TRL functions that differ from all tested versions: GRPOTrainer._compute_loss" in capsys.readouterr().out


def test_a_method_that_trl_removed_counts_as_changed(monkeypatch):
    monkeypatch.delattr(GRPOTrainer, "_tool_call_loop")
    assert tested_trl.changed_functions.__wrapped__() == ("GRPOTrainer._tool_call_loop",)


def test_the_installed_trl_is_tested_and_causes_no_warning(capsys):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_trl_version("1.16.7")  # a new version number with unchanged code is accepted
    assert main(["env"]) == 0
    assert "- TRL functions that differ from all tested versions: none" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("fingerprints", "in_github", "line"),
    [
        ({"json:loads": "", "json:dumps": ""}, False, "  changed since the tested TRL versions: dumps, loads\n"),
        ({"json:loads": ""}, True, "::warning::changed since the tested TRL versions: loads\n"),
        ({}, True, ""),
    ],
    ids=["changed", "in GitHub Actions", "unchanged"],
)
def test_the_upgrade_tests_print_the_changed_functions(monkeypatch, capsys, tmp_path, fingerprints, in_github, line):
    spec = spec_from_file_location("run", ROOT / "tests/upgrades/run.py")
    run = module_from_spec(spec)
    spec.loader.exec_module(run)
    monkeypatch.setattr(run, "make_environment", lambda *args, **kwargs: sys.executable)
    monkeypatch.setattr(run, "run_tests", lambda *args: (1, []))
    replacement = f"tested_trl.known_fingerprints = lambda: {{'1.16.0': {fingerprints}}}"
    # Python imports this file at startup.
    (tmp_path / "sitecustomize.py").write_text(f"from trl_ces.support import tested_trl\n{replacement}\n")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)
    if in_github:
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
    assert run.check("latest", tmp_path)
    assert capsys.readouterr().out.partition("\n")[2] == line


@pytest.mark.parametrize(
    ("old", "new", "changed"),
    [
        ("torch.min(", "torch.max(", True),
        ("1 - self.epsilon_low", "(1 - self.epsilon_low) * 1", True),
        ("    def _compute_loss", "    # A comment.\n\n    def _compute_loss", False),
        ("(self, model, inputs):\n", '(self, model, inputs):\n        """A docstring."""\n', False),
        ("(self, model, inputs):\n", "(self, model,\n        inputs,):\n\n", False),
    ],
    ids=["function", "expression", "comment", "docstring", "formatting"],
)
def test_only_code_changes_a_fingerprint(newer_loss, old, new, changed):
    assert (fingerprint(newer_loss(old, new)) != fingerprint(GRPOTrainer._compute_loss)) is changed


def test_every_function_that_the_package_uses_has_a_fingerprint():
    assert set(known_fingerprints()[NEWEST]) == set(used_functions()), "run make trl-fingerprints"
    assert len(used_functions()) > 10


@pytest.mark.parametrize("version", ["1.15.0", "1.9.2", "0.29.1"])
def test_the_error_for_an_old_trl_contains_the_install_command(version):
    with pytest.raises(
        ImportError, match=rf"trl {version} is installed.*1\.16\.0 or newer: run `pip install trl=={NEWEST}`"
    ):
        check_trl_version(version)


def test_pip_installs_only_tested_versions():
    lines = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    [allowed] = [SpecifierSet(line.removeprefix("trl")) for line in lines if line.startswith("trl>")]
    major, minor = Version(NEWEST).release[:2]
    assert all(version in allowed for version in known_fingerprints())
    assert f"{major}.{minor + 1}.0" not in allowed
    for name in ("constraints.txt", "constraints-gpu.txt"):
        assert f"trl=={NEWEST}" in (ROOT / name).read_text().splitlines()
