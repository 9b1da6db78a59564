"""After the training: save, say what was saved, write the model card, push."""

import os
import shlex
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from .environment import environment
from .network import hub_errors
from .recipe import Recipe, recipe_fields

if TYPE_CHECKING:
    from .config import CESConfig
    from .trainer import CESTrainer

SHAPING_TITLES = {
    "ces": "Conditional Entropy Shaping (CES)",
    "none": "DAPO, without shaping",
    "entropy_advantage": "DAPO with the entropy advantage of Cheng et al. (arXiv 2506.14758)",
}
# The settings that a reader of the card looks for; those not listed stand in the checkpoint's training_args.bin.
SHAPING_FIELDS = {
    "ces": ("ces_tau", "ces_beta_correct", "ces_beta_incorrect", "ces_dynamic_multiplier", "ces_entropy_gradient",
            "ces_accuracy_reward", "ces_correct_threshold"),
    "none": (),
    "entropy_advantage": ("entropy_advantage_alpha", "entropy_advantage_kappa"),
}  # fmt: skip
TRAINING_FIELDS = (
    "loss_type", "epsilon", "epsilon_high", "beta", "learning_rate", "lr_scheduler_type", "warmup_steps", "adam_beta1",
    "adam_beta2", "max_grad_norm", "num_generations", "per_device_train_batch_size", "gradient_accumulation_steps",
    "steps_per_generation", "num_iterations", "temperature", "top_p", "max_completion_length", "seed",
)  # fmt: skip
RESULTS = (
    "reward", "completions/mean_length", "entropy", "ces/group_accuracy", "ces/selected_tokens",
    "ces/shaping_to_advantage", "ces/sign_flip_share",
)  # fmt: skip
TRL_CITATION = """@software{vonwerra2020trl,
    title   = {{TRL: Transformers Reinforcement Learning}},
    author  = {von Werra, Leandro and Belkada, Younes and Tunstall, Lewis and Beeching, Edward and Thrush, Tristan and Lambert, Nathan and Huang, Shengyi and Rasul, Kashif and Gallouédec, Quentin},
    license = {Apache-2.0},
    url     = {https://github.com/huggingface/trl},
    year    = {2020}
}"""  # noqa: E501


def save_and_publish(trainer: "CESTrainer", recipe: Recipe) -> None:
    """
    Saves model, tokenizer, training state and model card in `output_dir`, and pushes them if the recipe asks for it.

    Called on every process: gathering a sharded model takes all of them. A push that fails leaves the saved model as
    it is and prints the command that repeats the push.

    Args:
        trainer ([`CESTrainer`]):
            After `train()`.
        recipe ([`Recipe`]):
            What was trained.
    """
    args = cast("CESConfig", trainer.args)
    output_dir = Path(str(args.output_dir))
    wants_push, args.push_to_hub = args.push_to_hub, False  # else save_model pushes, and a failure there ends the run
    trainer.save_model(str(output_dir))
    trainer.save_state()
    if not trainer.is_world_process_zero():
        return
    card = model_card(recipe, args, trainer.state.log_history, trainer.state.global_step, trainer._paper["citation"])
    (output_dir / "README.md").write_text(card, encoding="utf-8")
    saved = sorted(file.name for file in output_dir.iterdir() if file.is_file())
    print(f"\nSaved in {output_dir}: {', '.join(saved)}.")
    print(f"Load it:\n{_load_code(str(output_dir), recipe.model.use_peft)}", flush=True)
    if wants_push:
        push(output_dir, args)


def push(output_dir: Path, args: "CESConfig") -> bool:
    """
    Uploads a saved model, without its checkpoints.

    Args:
        output_dir (`Path`):
            The directory to upload.
        args ([`CESConfig`]):
            `hub_model_id`, `hub_token`, `hub_private_repo` and `hub_revision` count.

    Returns:
        `bool`: Whether it arrived. If not, the reason and the command to retry have been printed.
    """
    from huggingface_hub import HfApi

    repo = args.hub_model_id or output_dir.resolve().name
    api = HfApi(token=args.hub_token)
    refusals: tuple[type[Exception], ...] = (*hub_errors(), ValueError)
    try:
        repo = api.create_repo(repo, private=args.hub_private_repo, exist_ok=True).repo_id
        if args.hub_revision is not None:
            api.create_branch(repo, branch=args.hub_revision, exist_ok=True)
        api.upload_folder(
            repo_id=repo,
            folder_path=output_dir,
            revision=args.hub_revision,
            ignore_patterns=["checkpoint-*", "_*"],
            commit_message="Trained with trl_ces",
        )
    except refusals as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        retry = ["hf", "upload", repo, str(output_dir), "--exclude", "checkpoint-*"]
        retry += ["--revision", args.hub_revision] if args.hub_revision else []
        retry += ["--private"] if args.hub_private_repo else []
        print(
            f"The push to the Hub failed: {reason}\nThe model is saved. Push it again:\n  {shlex.join(retry)}",
            flush=True,
        )
        return False
    print(f"Pushed to https://huggingface.co/{repo}", flush=True)
    return True


def model_card(
    recipe: Recipe, args: "CESConfig", log_history: list[dict[str, float]], steps: int, citation: str
) -> str:
    """
    The model card: what was trained how, how to load it, whom to cite.

    Args:
        recipe ([`Recipe`]):
            The checked recipe.
        args ([`CESConfig`]):
            The settings of the run, derived ones included.
        log_history (`list[dict[str, float]]`):
            The trainer's log.
        steps (`int`):
            Optimizer steps done.
        citation (`str`):
            The paper's BibTeX entry.

    Returns:
        `str`: Markdown with the Hub's metadata on top.
    """
    from huggingface_hub import ModelCardData

    base, dataset = str(recipe.model.model_name_or_path), str(recipe.script.dataset_name)
    name = args.hub_model_id or Path(str(args.output_dir)).resolve().name
    metadata = ModelCardData(
        base_model=base if _is_hub_id(base) else None,
        datasets=dataset if _is_hub_id(dataset) and dataset.count("/") else None,
        library_name="peft" if recipe.model.use_peft else "transformers",
        pipeline_tag="text-generation",
        tags=["trl", "ces", "grpo", "generated_from_trainer"],
    )
    versions = environment()
    sections = [
        f"---\n{metadata.to_yaml()}\n---\n\n# {name}",
        f"[{base}](https://huggingface.co/{base})" if _is_hub_id(base) else f"`{base}`",
    ]
    sections[-1] = (
        f"{sections[-1]}, trained for {steps} optimizer steps on `{dataset}` with {SHAPING_TITLES[args.shaping]}, by "
        "[TRL](https://github.com/huggingface/trl) and `trl_ces`. CES shapes the advantage of DAPO: it takes "
        "entropy from correct answers and gives it to wrong ones, at the most uncertain tokens "
        "([arXiv 2605.19358](https://arxiv.org/abs/2605.19358))."
    )
    sections += [
        f"## Use\n\n```python\n{_load_code(name, recipe.model.use_peft)}\n```",
        "## Shaping\n\n" + _table({"shaping": args.shaping} | _values(args, SHAPING_FIELDS[args.shaping])),
        "## Training\n\n" + _table(_values(args, TRAINING_FIELDS) | _given(recipe)),
    ]
    results = _last_results(log_history)
    if results:
        sections.append("## Last logged values\n\n" + _table(results))
    sections += [
        "## Versions\n\n"
        + _table({key: versions[key] for key in ("trl_ces", "trl", "transformers", "torch", "datasets")}),
        f"## Citation\n\n```bibtex\n{citation}\n```\n\n```bibtex\n{TRL_CITATION}\n```",
    ]
    return "\n\n".join(sections) + "\n"


def _is_hub_id(name: str) -> bool:
    return (
        not os.path.exists(name)
        and not name.startswith((".", "/", "~"))
        and Path(name).suffix not in (".json", ".jsonl")
    )


def _load_code(name: str, is_adapter: bool) -> str:
    # `transformers` loads an adapter's directory together with its base model where `peft` is installed
    note = "  # an adapter: needs peft" if is_adapter else ""
    return (
        "from transformers import AutoModelForCausalLM, AutoTokenizer\n"
        f'model = AutoModelForCausalLM.from_pretrained("{name}"){note}\n'
        f'tokenizer = AutoTokenizer.from_pretrained("{name}")'
    )


def _values(args: "CESConfig", names: tuple[str, ...]) -> dict[str, Any]:
    return {name: getattr(args, name) for name in names}


def _given(recipe: Recipe) -> dict[str, Any]:
    """The recipe's data fields that differ from their defaults."""
    fields = recipe_fields()
    return {
        name: value
        for name, value in vars(recipe.script).items()
        if name not in ("dataset_name", "model_builder") and value != fields[name].default
    }


def _last_results(log_history: list[dict[str, float]]) -> dict[str, Any]:
    last = next((entry for entry in reversed(log_history) if "reward" in entry), {})
    # A mean over nothing, such as the entropy selected in correct answers where none is correct, is logged as None
    return {name: f"{last[name]:.4g}" for name in RESULTS if last.get(name) is not None}


def _table(rows: Mapping[str, Any]) -> str:
    def cell(value: Any) -> str:
        text = str(value.value if hasattr(value, "value") else value)
        return text.replace("|", "\\|").replace("\n", " ")

    lines = [f"| `{name}` | {cell(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])
