"""DAPO and CES on the long small world, with a larger model than a CPU trains: `trl-ces study` on this device.

trl-ces bench gpu_world --device cuda
"""

import argparse
from pathlib import Path

from trl_ces.cli.main import main as trl_ces
from trl_ces.support.yaml import dump_yaml, read_yaml
from trl_ces.train.recipe import find_config

# The base model: 8 layers of 512 instead of 3 of 96.
LARGE = {"sums": 12, "slip_probability": 0.06, "layers": 8, "width": 512, "batch_size": 64, "learning_rate": 1e-3}
TINY = {"sums": 2, "layers": 1, "width": 32, "batch_size": 4, "steps": 3}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--tiny", action="store_true", help="a few steps, to see it run")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/bench/gpu_world"))
    options = parser.parse_args(argv)
    study = read_yaml(find_config("arithmetic_long", kind="study"))
    overrides, evaluation = study["overrides"], study["evaluation"]
    study["output_dir"] = str(options.output_dir)
    study["seeds"] = list(range(options.seeds))
    study["methods"] = {name: study["methods"][name] for name in ("DAPO", "CES")}
    overrides["model_name_or_path"] = f"{options.output_dir}/base/seed-{{seed}}"
    base = TINY if options.tiny else LARGE
    overrides["model_builder_kwargs"] = {"seed": "{seed}", "device": options.device, **base}
    overrides["dataset_kwargs"] = {"sums": base["sums"]}
    evaluation |= {"device": options.device, "sums": base["sums"]}
    overrides["learning_rate"] = 1.0e-4
    if options.device == "cuda":
        overrides |= {"use_cpu": False, "bf16": True, "per_device_train_batch_size": 64}
        overrides |= {"gradient_accumulation_steps": 1, "steps_per_generation": 4}
    if options.tiny:
        overrides |= {"max_steps": 2, "warmup_steps": 0, "max_completion_length": 40}
        evaluation |= {"num_problems": 4, "num_samples": 2, "max_new_tokens": 40}
    options.output_dir.mkdir(parents=True, exist_ok=True)
    file = options.output_dir / "study.yaml"
    file.write_text(dump_yaml(study), encoding="utf-8")
    return trl_ces(["study", "--config", str(file)])


if __name__ == "__main__":
    raise SystemExit(main())
