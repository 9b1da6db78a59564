"""TRL's default correction for vLLM's sampling, `sequence_mask`, with CES: a completion counts by its weight or not.

The other modes stand in tests/test_compatibility.py. No engine is needed: the log-probabilities come from a script.
"""

import math

import torch
from against_reference import PROMPTS, assert_loss_and_gradients_agree, make_trainer, reference_rows, rollout
from objectives import TAU, advantages_by_hand, objective
from reference import float64_copy, logps_and_bits
from tiny import random_script

BOUND = 3.0  # TRL's default


def test_a_completion_beyond_the_bound_is_left_out_and_the_others_are_weighted(tmp_path):
    script = random_script(PROMPTS, [[1, 0, 0, 1], [0, 0, 0, 1]], torch.Generator().manual_seed(1))
    trainer = make_trainer(tmp_path, script, ces_tau=float(TAU), vllm_importance_sampling_mode="sequence_mask")
    assert trainer.vllm_importance_sampling_clip_max == BOUND
    rows, model = reference_rows(trainer, script), float64_copy(trainer.model)
    generator = torch.Generator().manual_seed(9)
    with torch.no_grad():
        exact = [[logp.item() for logp in logps_and_bits(model, row, 1.0)[0]] for row in rows]
    # How far the sampler is off, in nats a token; over a completion it adds up.
    errors = [(0.3 * torch.randn(len(row["mask"]), generator=generator)).tolist() for row in rows]
    sampled = [[p + e for p, e in zip(*pair, strict=True)] for pair in zip(exact, errors, strict=True)]
    scripted = trainer.rollout_func
    trainer.rollout_func = lambda prompts, trainer: {**scripted(prompts, trainer), "logprobs": sampled}
    trainer.use_vllm, trainer._last_loaded_step = True, 0  # as if the sampler had today's weights
    batch = rollout(trainer, script)
    loss = trainer._compute_loss(trainer.model, batch)

    products = [math.exp(-sum(row)) for row in errors]
    weights = [product if product <= BOUND else 0.0 for product in products]
    assert 0 < weights.count(0.0) < 8, "the test needs completions on both sides of the bound"
    torch.testing.assert_close(
        batch["importance_sampling_ratio"], torch.tensor(weights).unsqueeze(1), rtol=1e-4, atol=0.0
    )
    entries = [row for group in script.values() for row in group]
    advantages = advantages_by_hand("", [row["accuracy"] for row in entries], [row["bonus"] for row in entries])
    spread = [[weight] * len(row) for weight, row in zip(weights, errors, strict=True)]
    expected = objective([model] * 8, rows, advantages, weights=spread)
    assert_loss_and_gradients_agree(trainer, loss, model, expected)
