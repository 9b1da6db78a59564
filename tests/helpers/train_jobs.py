"""Make a small training job and run `trl-ces` commands."""

import json

from processes import run_command
from tiny import save_tiny

RECIPE = """# A tiny model and four sums
model_name_or_path: {model}
output_dir: {output}
dataset_name: {data}
system_prompt: null
use_cpu: true
bf16: false
gradient_checkpointing: false
reward_funcs: [accuracy_reward, get_soft_overlong_punishment]
max_completion_length: 8
num_generations: 2
responses_per_step: 4
responses_per_rollout: 8
ces_tau: 0.5
max_steps: 2
learning_rate: 1e-3
logging_steps: 1
save_steps: 2
disable_tqdm: true
env: {{TRL_CES_TEST_VARIABLE: seen}}
"""
TOKENS = {
    "HF_TOKEN": "hf_SECRETsecretSECRET1",
    "HUGGING_FACE_HUB_TOKEN": "hf_SECRETsecretSECRET2",
    "WANDB_API_KEY": "SECRETsecretSECRET3",
    "OPENAI_API_KEY": "sk-SECRETsecretSECRET4",
}


def make_job(folder):
    """Write a model, data and a recipe to disk; return the paths of the recipe and the output directory."""
    save_tiny(folder / "model")
    rows = [{"question": f"{n}+{n}=", "answer": 2 * n} for n in range(4)]
    (folder / "data.jsonl").write_text("\n".join(map(json.dumps, rows)))
    recipe = folder / "recipe.yaml"
    output = folder / "out"
    recipe.write_text(RECIPE.format(model=folder / "model", output=output, data=folder / "data.jsonl"))
    return recipe, output


def trl_ces(*args, cwd=None):
    return run_command(args, cwd)
