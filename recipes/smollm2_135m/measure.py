"""What SmolLM2 answers to held-out problems of its recipe, before and after training: three minutes a model on a CPU.

python recipes/smollm2_135m/measure.py ~/.cache/trl_ces/SmolLM2-135M-Instruct outputs/smollm2_135m-ces
"""

import sys
from dataclasses import replace
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from trl_ces.toy.reasoning_tasks import last_number_accuracy_reward
from trl_ces.train.data import load_datasets
from trl_ces.train.recipe import load_recipe

PROBLEMS, SAMPLES, BATCH = 48, 8, 64


def sample(model_dir: str, prompts: list) -> tuple[list[str], float]:
    """One completion of each prompt, sampled as in training, and their mean length in tokens."""
    tokenizer = AutoTokenizer.from_pretrained(model_dir, padding_side="left")
    model = AutoModelForCausalLM.from_pretrained(model_dir, dtype=torch.float32).eval()
    texts = [tokenizer.apply_chat_template(prompt, tokenize=False, add_generation_prompt=True) for prompt in prompts]
    torch.manual_seed(0)
    completions: list[str] = []
    for start in range(0, len(texts), BATCH):
        inputs = tokenizer(texts[start : start + BATCH], return_tensors="pt", padding=True, add_special_tokens=False)
        with torch.no_grad():
            tokens = model.generate(**inputs, do_sample=True, temperature=1.0, top_k=0, max_new_tokens=64)
        completions += tokenizer.batch_decode(tokens[:, inputs.input_ids.shape[1] :], skip_special_tokens=True)
    return completions, sum(len(tokenizer(text).input_ids) for text in completions) / len(completions)


def main() -> None:
    """Prints a line for each model directory on the command line."""
    script = load_recipe(Path(__file__).with_name("ces.yaml")).script
    _, problems = load_datasets(replace(script, num_eval_samples=PROBLEMS))
    assert problems is not None
    prompts = [prompt for prompt in problems["prompt"] for _ in range(SAMPLES)]
    golds = [gold for gold in problems["solution"] for _ in range(SAMPLES)]
    for model_dir in sys.argv[1:]:
        completions, length = sample(model_dir, prompts)
        share = torch.tensor(last_number_accuracy_reward(completions, golds)).view(-1, SAMPLES).mean(dim=1)
        error = share.std().item() / len(share) ** 0.5
        mixed = ((share > 0) & (share < 1)).float().mean().item()
        print(f"{model_dir}: accuracy {share.mean():.3f} (s.e. {error:.3f}), mixed {mixed:.2f}, {length:.1f} tokens")


if __name__ == "__main__":
    main()
