"""Output directories as `trl-ces train` leaves them, with a tiny model."""

import json

from peft import LoraConfig, get_peft_model
from report_runs import POINTS, write_training
from tiny import save_tiny, settings, tiny_model, tiny_tokenizer
from transformers import AutoModelForCausalLM

from trl_ces import CESConfig
from trl_ces.train.card import write_facts

RECIPE = """model_name_or_path: some-org/base-model
dataset_name: zwhe99/DeepMath-103K
output_dir: /home/someone/out
max_train_samples: 2500
shaping: ces
ces_tau: 0.02
learning_rate: 2.0e-7
"""


def write_recorded(folder, changed=None, **fields):
    """The run.json of a run with these fields of a `CESConfig`; `changed`: settings that follow from its machines."""
    fields = {"ces_tau": 0.02, "max_completion_length": 8, **fields}
    write_facts(folder, CESConfig(**{**settings(folder), **fields}))
    recorded = json.loads((folder / "run.json").read_text())
    recorded["settings"] |= changed or {}
    recorded["packages"] |= {"trl_ces": "0.1.0", "torch": "2.13.0", "vllm": "not installed"}
    (folder / "run.json").write_text(json.dumps(recorded))


def write_run(folder, recipe=RECIPE, points=POINTS, max_steps=8):
    """A finished run with random weights."""
    write_training(folder, points, recipe, max_steps)
    save_tiny(folder, seed=3)
    write_recorded(folder)
    (folder / "training_args.bin").write_bytes(b"a pickle")
    return folder


def write_adapter_run(folder, base):
    """A finished LoRA run on the model in `base`; returns that model with its adapter."""
    tiny_model(seed=3).save_pretrained(base)
    model = AutoModelForCausalLM.from_pretrained(base)
    model = get_peft_model(model, LoraConfig(target_modules=["q_proj", "v_proj"], r=4, init_lora_weights=False))
    write_training(folder, POINTS, RECIPE.replace("some-org/base-model", str(base)) + "use_peft: true\n", 8)
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    write_recorded(folder)
    return model
