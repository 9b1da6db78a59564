"""Test imports by dotted path: the working directory is searched, but its files do not shadow other modules."""

import secrets
import sys

import pytest

from trl_ces.support.errors import UserError
from trl_ces.support.imports import import_path

REWARD = "def reward(completions, **columns):\n    return [1.0] * len(completions)\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Create and enter a working directory; modules imported from it are unloaded after the test."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_modules_and_packages_of_the_working_directory_are_imported(folder):
    (folder / "my_rewards.py").write_text("import my_helper\n" + REWARD)
    (folder / "my_helper.py").touch()
    (folder / "my_package").mkdir()
    (folder / "my_package" / "inner.py").write_text(REWARD)
    assert import_path("my_rewards.reward", "reward_funcs")([""]) == [1.0]
    assert import_path("my_package.inner:reward", "reward_funcs")([""]) == [1.0]


@pytest.mark.parametrize("path", ["secrets.reward", "secrets.inner.reward", "json.reward", "yaml.reward"])
def test_the_error_for_a_conflicting_module_suggests_a_file_to_rename(folder, path):
    file = folder / f"{path.partition('.')[0]}.py"
    file.write_text(REWARD)
    with pytest.raises(UserError, match=rf"`reward_funcs`: .*: rename {file}\."):
        import_path(path, "reward_funcs")
    assert sys.modules["secrets"] is secrets


def test_the_error_for_an_unknown_name_suggests_a_similar_name(folder):
    (folder / "own_rewards.py").write_text(REWARD)
    with pytest.raises(UserError, match=r"own_rewards has no 'rewards'\. Did you mean `reward`\?"):
        import_path("own_rewards.rewards", "reward_funcs")


def test_an_error_in_a_module_is_reported_without_a_naming_hint(folder):
    (folder / "own_rewards.py").write_text("1 / 0\n")
    with pytest.raises(UserError, match=r"imported: ZeroDivisionError: division by zero\.$"):
        import_path("own_rewards.reward", "reward_funcs")
