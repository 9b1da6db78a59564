"""What the command line says before it has anything to do, and what it keeps to itself."""

import subprocess
import sys

from processes import environment

from trl_ces.cli.main import main
from trl_ces.train.compose import compose


def test_train_without_arguments_is_a_few_lines_and_exit_code_2(capsys):
    assert main(["train"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) <= 7
    assert "trl-ces train --config smollm2_135m" in said.err


def test_known_warnings_of_others_are_dropped_and_no_more():
    code = """
import warnings
from trl_ces.support.errors import quiet_others
quiet_others()
for name in ("gradient_checkpointing", "gradient_checkpointing_enable", "torch.distributed.reduce_op", "other"):
    warnings.warn(f"`{name}` is deprecated and will go.", FutureWarning)
"""
    ended = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert "`other` is deprecated" in ended.stderr
    assert ended.stderr.count("FutureWarning") == 1


def test_a_recipe_is_copied_to_a_new_file_whole(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["recipes", "copy", "R1-7B", "alp", "my.yaml"]) == 0
    assert compose(["my.yaml"]) == compose(["R1-7B", "alp"])
    assert main(["recipes", "copy", "R1-7B", "my.yaml"]) == 2
    assert "my.yaml exists: name a new file" in capsys.readouterr().err
