"""A model's shape: from its folder, from what is known here, from a file that stands in."""

import pytest
import torch
from tiny import tiny_model
from transformers import AutoModelForCausalLM

from trl_ces.lab.tasks.arithmetic_model import BASE_TRAINING, _new_model, build_tokenizer
from trl_ces.support.errors import UserError
from trl_ces.train.sizes import BUILT_SHAPES, KNOWN_SHAPES, find_shape


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        # What the Hub says of their safetensors.
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B", 1_777_088_000),
        ("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B", 7_615_616_512),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 134_515_008),
    ],
)
def test_the_known_shapes_have_the_models_numbers_of_weights(name, weights):
    shape = find_shape(name)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(shape.config())
    assert model.num_parameters() == weights


def test_the_quickstarts_shape_is_that_of_the_model_it_makes():
    made = _new_model(build_tokenizer(), 0, BASE_TRAINING["layers"], BASE_TRAINING["width"]).config
    ((builder, known),) = BUILT_SHAPES.items()
    assert {name: getattr(made, name) for name in known} == known
    assert find_shape("runs/not/there", builder).config().vocab_size == made.vocab_size


def test_a_models_directory_goes_before_what_is_known(tmp_path, monkeypatch):
    tiny_model().save_pretrained(tmp_path / "model")
    assert find_shape(str(tmp_path / "model")).config().hidden_size == 16
    (name, *_) = KNOWN_SHAPES
    assert find_shape(name, given=str(tmp_path / "model" / "config.json")).config().hidden_size == 16
    (tmp_path / "config.json").write_text('{"hidden_size": 16}')
    with pytest.raises(UserError, match="cannot be read"):
        find_shape(name, given=str(tmp_path))
    with pytest.raises(UserError, match="--model_config"):
        find_shape("nobody/nothing")
