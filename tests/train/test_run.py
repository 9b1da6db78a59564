"""Failures of a training that have a sentence of their own."""

import pytest
from tiny import tiny_tokenizer

from trl_ces.train.recipe import make_recipe
from trl_ces.train.run import _known_problem


def test_a_tokenizer_without_a_chat_template_is_told_with_two_ways_out(tmp_path):
    recipe = make_recipe({"model_name_or_path": "base-1B", "output_dir": "out", "dataset_name": "d"}, "my.yaml")
    with pytest.raises(ValueError, match="chat_template") as found:
        tiny_tokenizer(chat_template=None).apply_chat_template([{"role": "user", "content": "1+2="}])
    said = _known_problem(found.value, recipe, tmp_path)
    assert "the tokenizer of base-1B has no chat template: name an instruct model, or give text prompts" in said
    assert _known_problem(ValueError("something else"), recipe, tmp_path) is None
