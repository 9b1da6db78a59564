"""LoRA from `trl-ces train` to the Hub: merged weights are the base plus the adapter's product, computed here."""

import json

import pytest
import torch
import yaml
from fixtures_evaluation import write_model
from huggingface_hub import ModelCard
from pushes import push
from safetensors.torch import load, load_file
from transformers import AutoModelForCausalLM

from trl_ces.cli import train_worker

RANK, ALPHA = 4, 12
TARGETS = ["q_proj", "down_proj"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Two optimizer steps of LoRA on a tiny model: its base, its folder."""
    folder = tmp_path_factory.mktemp("lora")
    base = write_model(folder / "base")
    rows = [{"question": f"{n}+{n}=?", "answer": str(2 * n)} for n in range(8)]
    (folder / "data.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recipe = {
        "model_name_or_path": str(base),
        "dataset_name": str(folder / "data.jsonl"),
        "output_dir": str(folder / "run"),
        "use_peft": True,
        "lora_r": RANK,
        "lora_alpha": ALPHA,
        "lora_target_modules": TARGETS,
        "num_generations": 4,
        "per_device_train_batch_size": 8,
        "max_completion_length": 8,
        "max_steps": 2,
        "learning_rate": 0.05,  # so that two steps show in float32
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "save_strategy": "no",
        "report_to": "none",
        "ces_tau": 0.5,  # no answer is right: only shaped tokens have a gradient
        "dtype": "float32",
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    assert train_worker.main(["--expect_processes", "1", "--recipe", str(folder / "recipe.yaml")]) == 0
    return base, folder / "run"


def test_the_adapter_arrives_as_it_was_trained(hub, undrawn, trained):
    _, run = trained
    assert push(run, "--repo_id", "me/adapter") == 0
    files = hub.repos["me/adapter"].files
    assert "model.safetensors" not in files
    sent, saved = load(files["adapter_model.safetensors"]), load_file(run / "adapter_model.safetensors")
    assert {name: value.tolist() for name, value in sent.items()} == {n: v.tolist() for n, v in saved.items()}
    assert any(value.abs().max() > 1e-3 for name, value in sent.items() if "lora_B" in name)  # it was trained
    settings = json.loads(files["adapter_config.json"])
    assert (settings["r"], settings["lora_alpha"], sorted(settings["target_modules"])) == (
        RANK,
        ALPHA,
        sorted(TARGETS),
    )
    assert ModelCard(files["README.md"].decode()).data.library_name == "peft"


def test_merged_weights_are_the_base_plus_the_product_of_the_adapter(hub, undrawn, trained, tmp_path):
    base, run = trained
    saved = {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()}
    assert push(run, "--repo_id", "me/merged") == 0  # what was there before must not be what loads
    assert push(run, "--merge", "--repo_id", "me/merged") == 0
    assert {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} == saved
    files = hub.repos["me/merged"].files
    assert not [name for name in files if name.startswith("adapter")]
    merged, before = load(files["model.safetensors"]), load_file(base / "model.safetensors")
    adapter = load_file(run / "adapter_model.safetensors")
    assert set(merged) == set(before)
    changed = 0
    for name, weight in before.items():
        key = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{key}.lora_A.weight" in adapter:
            change = ALPHA / RANK * adapter[f"{key}.lora_B.weight"] @ adapter[f"{key}.lora_A.weight"]
            assert change.abs().max() > 1e-3
            weight = weight + change
            changed += 1
        torch.testing.assert_close(merged[name], weight, rtol=1e-6, atol=1e-6)
    assert changed == 2 * len(TARGETS)  # layers
    card = ModelCard(files["README.md"].decode())
    assert card.data.library_name == "transformers"
    assert "The weights are those of a LoRA adapter and its base, merged." in card.text
    assert "with DAPO and Conditional Entropy Shaping (CES), by" in card.text
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    AutoModelForCausalLM.from_pretrained(tmp_path)  # without peft
