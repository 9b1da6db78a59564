"""`trl-ces report --tokens N`: samples a run's saved models, and writes down what CES does to each token."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

from ...config import CESConfig
from ...support.errors import UserError
from ...support.yaml import read_yaml
from ...train.checkpoints import read_state
from ...train.recipe import RECIPE, Recipe, make_recipe
from ..evaluation.models import check_model
from ..inspect.sampling import RecipeSample, sample_recipe
from ..inspect.settings import Sampling, read_prompts
from .runs import Found
from .tokens import DIGITS, FollowedToken, TokenFile, digest, read_tokens, token_answers, write_tokens
from .trainings import Training, logged_checkpoints, read_recipe

CES_FIELDS = ("ces_tau", "ces_beta_correct", "ces_beta_incorrect", "ces_dynamic_multiplier")
# Completions whose tokens' distributions are held together.
ANSWERS_AT_A_TIME = 8


def models_of(run: Path, settings: dict[str, Any]) -> dict[int, Path]:
    """Step -> its saved model, as far as there is one: before training, at each checkpoint, at the end."""
    found: dict[int, Path] = {}
    base = base_of(run, settings)
    if base is not None:
        found[0] = base
    found |= {step: folder for step, folder in logged_checkpoints(run).items() if _saved(folder)}
    if _saved(run) and (state := read_state(run)) is not None:
        found[state["global_step"]] = run
    return dict(sorted(found.items()))


def base_of(run: Path, settings: dict[str, Any]) -> Path | None:
    """The model that a run started from, also if both were moved together, as a study with its bases is."""
    named = Path(str(settings.get("model_name_or_path", ""))).expanduser()
    output = Path(str(settings.get("output_dir", "")))
    places = [named]
    for study in output.parents[:-1]:
        if named.is_relative_to(study):  # both were in one folder, so they were moved together
            here = run.absolute()
            for _ in output.relative_to(study).parts:
                here = here.parent
            places.append(here / named.relative_to(study))
    return next((place for place in places if _saved(place)), None)


def _saved(folder: Path) -> int | None:
    """When the model in `folder` was saved, in ns; `None` if there is none."""
    files = [folder / name for name in ("config.json", "adapter_config.json") if (folder / name).is_file()]
    return max((file.stat().st_mtime_ns for file in files), default=None)


def shaping_of(settings: dict[str, Any], other: dict[str, Any] | None = None) -> dict[str, Any]:
    """A recipe's shaping as keyword arguments; without CES that of `other`, else CESConfig's defaults."""
    source = settings if settings.get("shaping", "ces") == "ces" else (other or {})
    defaults = {entry.name: entry.default for entry in fields(CESConfig)}
    tau, correct, incorrect, dynamic = (source.get(name, defaults[name]) for name in CES_FIELDS)
    cap = source.get("ces_cap_incorrect")
    return {
        "tau": float(tau),
        "beta_correct": float(correct),
        "beta_incorrect": float(incorrect),
        "dynamic_multiplier": dynamic,
        **({} if cap is None else {"cap_incorrect": float(cap)}),
        **({"mask_truncated": True} if source.get("mask_truncated_completions") else {}),
    }


def sample_tokens(found: Found, num_prompts: int, say: Callable[[str], None]) -> None:
    """Writes token files for the runs; of a study for the first seed of each method and variant."""
    chosen = list(found.trainings)
    for study in found.studies:
        first: dict[tuple[str, str], Training] = {}
        for training in study.trainings:
            first.setdefault((training.variant, training.method), training)
        chosen += first.values()
    if not chosen:
        raise UserError("`--tokens` needs a training or a study among the runs: evaluations hold no models.")
    models = [check_tokens(training) for training in chosen]  # before the first model is loaded
    ces = next((read_recipe(run.folder) for run in chosen if run.is_whole_ces), None)
    for training, saved in zip(chosen, models, strict=True):
        _sample_run(training, saved, num_prompts, ces, say)


def check_tokens(training: Training) -> dict[int, Path]:
    """The models of a run that can be sampled, by step."""
    if not (training.folder / RECIPE).is_file():
        raise UserError(
            f"`--tokens` needs the recipe of {training.folder}, for its prompts, τ and β: copy the YAML that it "
            f"was trained by to {training.folder / RECIPE}."
        )
    models = models_of(training.folder, training.settings)
    if not models:
        raise UserError(f"`--tokens` needs a model, and {training.folder} holds none (no config.json, no checkpoint).")
    return models


def _sample_run(
    training: Training,
    models: dict[int, Path],
    num_prompts: int,
    ces: dict[str, Any] | None,
    say: Callable[[str], None],
) -> None:
    """Writes `tokens-STEP.jsonl` for each model, unless it is there with the same settings."""
    shaping = shaping_of(read_recipe(training.folder), ces)  # a study's rows say `ces_tau: auto`, the recipe a number
    there = {content.step: content for content in read_tokens(training.folder)}
    reference: TokenFile | None = None
    for step, model in models.items():
        recipe, sampling = _sampling(training, model, shaping["tau"])
        settings = {
            "step": step,
            "model": model.name,
            "saved": _saved(model),
            "num_prompts": num_prompts,
            **{name: getattr(sampling, name) for name in ("num_samples", "temperature", "max_new_tokens", "seed")},
            "trained_with": training.settings.get("shaping", "ces"),
            "shaping": shaping,
            "reference": None if reference is None else digest(reference.settings),
        }
        content = there.get(step)
        if content is None or {**content.settings, "not_judged": None} != {**settings, "not_judged": None}:
            say(f"{training.method}: sampling the model of step {step} on {num_prompts} problems")
            content = _answer(recipe, sampling, settings, reference)
            try:
                write_tokens(training.folder, content)
            except OSError as error:
                raise UserError(f"{training.folder} cannot be written ({error.strerror}): copy the run.") from None
        reference = reference or content


def _sampling(training: Training, model: Path, tau: float) -> tuple[Recipe, Sampling]:
    """The run's recipe with a saved model in place of its own, sampled as in training."""
    file = training.folder / RECIPE
    recipe = make_recipe({**read_yaml(file), "model_name_or_path": str(model)}, str(file))
    check_model(str(model))
    return recipe, Sampling.of_recipe(recipe, num_samples=training.settings.get("num_generations", 8), tau=tau)


def _answer(recipe: Recipe, sampling: Sampling, settings: dict[str, Any], reference: TokenFile | None) -> TokenFile:
    """Loads the model, samples its completions, and looks at the reference's shaped tokens with it."""
    sample = sample_recipe(recipe, read_prompts(recipe, settings["num_prompts"]), sampling)
    answers = token_answers(
        sample.answers,
        sample.correct,
        sample.tokenizer,
        num_samples=sampling.num_samples,
        shaping=settings["shaping"],
    )
    places = [] if reference is None else _follow(sample, reference, sampling.temperature)
    if sample.correct is None:
        settings = {**settings, "not_judged": sample.reason or "no data"}
    questions = [sample.tokenizer.decode(ids) for ids in sample.prompts]
    return TokenFile(settings, questions, sample.prompts, answers, places)


def _follow(sample: RecipeSample, reference: TokenFile, temperature: float) -> list[FollowedToken]:
    """What a model thinks at the shaped tokens of the reference's completions."""
    import torch

    from ..inspect.answers import end_and_pad_tokens
    from ..inspect.tokens import forking_tokens, piece

    model, tokenizer = sample.model, sample.tokenizer
    _, pad = end_and_pad_tokens(model, tokenizer)
    numbers = [number for number, answer in enumerate(reference.answers) if answer.shaped]
    found = []
    for start in range(0, len(numbers), ANSWERS_AT_A_TIME):
        part = numbers[start : start + ANSWERS_AT_A_TIME]
        answers = [reference.answers[number] for number in part]
        prompts = [reference.prompts[answer.prompt] for answer in answers]
        with torch.no_grad():
            # tau 1: every token counts as a fork, so each place has its distribution.
            seen = forking_tokens(model, prompts, [a.ids for a in answers], temperature=temperature, tau=1.0, pad=pad)
        for number, answer, (_, forks) in zip(part, answers, seen, strict=True):
            at = {fork.place: fork for fork in forks}
            for place in (token.place for token in answer.shaped):
                fork = at[place]
                pair = [piece(tokenizer, token) for token in fork.pair]
                rounded = [round(value, DIGITS) for value in fork.probabilities]
                found.append(FollowedToken(number, place, round(fork.entropy, DIGITS), pair, rounded))
    return found
