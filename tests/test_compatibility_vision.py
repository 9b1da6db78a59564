"""Test CESTrainer with the vision-language model LLaVA, because Qwen-VL's processors need torchvision."""

import functools
import math
import string

import numpy as np
import pytest
import torch
from objectives import by_group, normalize, objective
from PIL import Image
from reference import float64_copy
from tiny import tiny_model, tiny_tokenizer
from trainers import prepare_trainer, tiny_trainer
from transformers import CLIPVisionConfig, LlavaConfig, LlavaForConditionalGeneration, LlavaProcessor
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from trl import GRPOConfig, GRPOTrainer
from trl.chat_template_utils import llava_next_chat_template

from trl_ces import CESConfig, CESTrainer
from trl_ces.methods.metrics import CES_METRICS


def vision_processor():
    tokenizer = tiny_tokenizer(llava_next_chat_template, string.printable, ["<image>"])
    size = {"height": 8, "width": 8}
    return LlavaProcessor(
        image_processor=CLIPImageProcessorPil(size=size, crop_size=size),
        tokenizer=tokenizer,
        patch_size=4,
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=llava_next_chat_template,
    )


def vision_model(vocabulary):
    torch.manual_seed(0)
    vision = CLIPVisionConfig(
        hidden_size=8, intermediate_size=16, num_hidden_layers=2, num_attention_heads=2, image_size=8, patch_size=4,
        projection_dim=8, initializer_range=0.5,
    )  # fmt: skip
    text = tiny_model(vocabulary=vocabulary).config
    return LlavaForConditionalGeneration(
        LlavaConfig(
            vision_config=vision,
            text_config=text,
            image_token_index=vocabulary - 1,
            image_seq_length=4,
            vision_feature_layer=-1,
        )
    )


def vision_trainer(trainer_class, config_class, tmp_path, **changes):
    processor = vision_processor()
    vocabulary = len(processor.tokenizer)
    noise = np.random.default_rng(0)
    images = [Image.fromarray(noise.integers(0, 255, (8, 8, 3), dtype=np.uint8)) for _ in range(4)]

    def lower_accuracy(completions, **kwargs):
        return [float(messages[0]["content"][:1].islower()) for messages in completions]

    arguments = {"max_steps": 2, "steps_per_generation": 2, "optim": "sgd", "epsilon_high": 0.28, **changes}
    arguments["generation_kwargs"] = {"suppress_tokens": [vocabulary - 1]}  # never sample <image>
    columns = {
        "prompt": [[{"role": "user", "content": "what is it"}]] * 4,
        "images": [[image] for image in images],
    }
    more = {"model": vision_model(vocabulary), "processing_class": processor}
    return tiny_trainer(tmp_path, lower_accuracy, columns, trainer_class, config_class, more, **arguments)


def train(trainer):
    """Train immediately, because creating the next trainer resets the seed."""
    trainer.train()
    return trainer


def test_a_vision_model_matches_trl_only_at_tau_0(tmp_path):
    upstream = train(vision_trainer(GRPOTrainer, GRPOConfig, tmp_path))
    tau_zero = train(vision_trainer(CESTrainer, CESConfig, tmp_path, ces_tau=0.0))
    ces = train(vision_trainer(CESTrainer, CESConfig, tmp_path, ces_tau=0.3))
    start, end = vision_model(len(upstream._tokenizer)).state_dict(), upstream.model.state_dict()
    for name, value in end.items():
        assert torch.equal(value, tau_zero.model.state_dict()[name]), name
    for name in ("model.multi_modal_projector.linear_1.weight", "lm_head.weight"):
        assert not torch.equal(end[name], start[name])
        assert not torch.equal(end[name], ces.model.state_dict()[name])
    for step in range(2):
        logged = [trainer.state.log_history[step] for trainer in (upstream, tau_zero, ces)]
        assert logged[0]["loss"] == logged[1]["loss"]
        assert logged[0]["grad_norm"] == logged[1]["grad_norm"]
        assert math.isfinite(logged[2]["loss"])
        assert set(CES_METRICS) <= set(logged[2])
        assert logged[2]["ces/selected_tokens"] > 0


def test_the_loss_of_a_vision_model_matches_algorithm_1(tmp_path):
    trainer = prepare_trainer(vision_trainer(CESTrainer, CESConfig, tmp_path, ces_tau=0.3, steps_per_generation=1))
    examples = [row for row in list(trainer.train_dataset)[:2] for _ in range(4)]
    batch = trainer._generate_and_score_completions(examples)
    loss = trainer._compute_loss(trainer.model, batch)
    rows = []
    for index in range(8):
        ids = batch["completion_ids"][index][batch["completion_mask"][index].bool()].tolist()
        text = trainer._tokenizer.decode(ids, skip_special_tokens=True)
        rows.append(
            {
                "prompt_ids": batch["prompt_ids"][index][batch["prompt_mask"][index].bool()].tolist(),
                "completion_ids": ids,
                "mask": [1] * len(ids),
                "accuracy": float(text[:1].islower()),
            }
        )
    advantages = by_group(normalize, [row["accuracy"] for row in rows])
    assert batch["correct"].tolist() == [row["accuracy"] == 1 for row in rows]
    assert 0 < sum(row["accuracy"] for row in rows) < 8
    model, pixels = float64_copy(trainer.model), batch["pixel_values"].double()
    with_images = [functools.partial(model, pixel_values=pixels[index : index + 1]) for index in range(8)]
    expected = objective(with_images, rows, advantages)
    assert loss.item() == pytest.approx(expected.item(), rel=0, abs=1e-5)
    loss.backward()
    expected.backward()
    for name in ("lm_head.weight", "model.multi_modal_projector.linear_1.weight"):
        reference = model.get_parameter(name).grad
        assert (trainer.model.get_parameter(name).grad.double() - reference).norm() / reference.norm() < 1e-4, name
    swapped = objective(with_images[::-1], rows, advantages)
    assert abs(swapped.item() - expected.item()) > 1e-3, "the test needs images that change the loss"
