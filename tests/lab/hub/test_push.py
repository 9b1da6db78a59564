"""`trl-ces push` through the real `huggingface_hub` client to a local Hub."""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hub_runs import RECIPE, write_adapter_run, write_recorded, write_run
from hub_server import TOKEN, Hub, Repo
from huggingface_hub import ModelCard, constants
from pushes import push
from report_runs import write_evaluation
from transformers import AutoModelForCausalLM

from trl_ces.cli.main import main
from trl_ces.lab.evaluation.models import fingerprint
from trl_ces.lab.evaluation.samples import read_samples
from trl_ces.lab.evaluation.settings import default_folder
from trl_ces.lab.evaluation.summary import summarize, write_summary
from trl_ces.lab.hub import staging
from trl_ces.lab.hub.push import Push, eval_results, read_summary

EXPECTED = {
    "README.md", "model.safetensors", "config.json", "generation_config.json", "tokenizer.json",
    "tokenizer_config.json", "chat_template.jinja", "recipe.yaml", "run.json", "trainer_state.json", "curves.png",
    "report.html",
}  # fmt: skip
UNDRAWN = EXPECTED - {"curves.png", "report.html"}


@pytest.fixture
def run(tmp_path, capsys):
    folder = write_run(tmp_path / "run")
    capsys.readouterr()
    return folder


def refusal(capsys, *words):
    assert push(*words) == 2
    said = capsys.readouterr().err
    assert said.startswith("trl-ces push: error: ")
    assert said.count("\n") == 1
    return said


def weights_sent(hub, run):
    content = (run / "model.safetensors").read_bytes()
    return hub.uploads[hashlib.sha256(content).hexdigest()], len(content)


# What arrives


def test_a_push_uploads_the_run_and_nothing_else_into_a_private_repository(hub, run, capsys):
    before = {file.name: file.read_bytes() for file in run.iterdir()}
    (run / "checkpoint-8").mkdir()
    (run / "checkpoint-8" / "optimizer.pt").write_bytes(b"big")
    assert push(run) == 0
    repo = hub.repos["me/run"]
    assert repo.private is True
    assert set(repo.files) == EXPECTED
    for name in EXPECTED - {"README.md", "curves.png", "report.html"}:
        assert repo.files[name] == before[name], name
    assert len(repo.commits) == 1
    assert f"Pushed to {hub.url}/me/run" in capsys.readouterr().out
    assert {file.name: file.read_bytes() for file in run.iterdir() if file.is_file()} == before
    assert repo.files["curves.png"].startswith(b"\x89PNG")
    report = repo.files["report.html"].decode()
    assert "<svg" in report or "data:image/svg" in report
    assert "_push-" not in report
    assert [name for name, content in repo.files.items() if TOKEN.encode() in content] == []
    assert "trl-ces report RUN --out report.html --tokens 32" in report  # `trl-ces push` has no --tokens


def test_what_was_pushed_can_be_used_by_the_lines_of_its_card(hub, run, tmp_path, capsys):
    push(run)
    copy = tmp_path / "me" / "run"
    copy.mkdir(parents=True)
    for name, content in hub.repos["me/run"].files.items():
        (copy / name).write_bytes(content)
    code = re.search(r"```python\n(.+?)```", (copy / "README.md").read_text(), re.DOTALL)[1]
    capsys.readouterr()
    names: dict = {}
    exec(code, names)  # the working directory has me/run, so the name finds the copy
    trained = AutoModelForCausalLM.from_pretrained(run)
    for one, other in zip(names["model"].parameters(), trained.parameters(), strict=True):
        assert torch.equal(one, other)
    assert names["messages"][0]["role"] == "system"
    assert names["output"].shape[1] > names["inputs"]["input_ids"].shape[1]


def test_a_push_that_is_private_does_not_go_into_a_repository_that_is_public(hub, run, undrawn, capsys):
    hub.repos["me/run"] = Repo(private=False)
    assert "me/run is public" in refusal(capsys, run)
    assert hub.repos["me/run"].commits == []
    assert push(run, "--public") == 0


def test_weights_that_no_push_wrote_are_not_removed(hub, run, undrawn, capsys):
    repo = hub.repos["me/run"] = Repo(private=True)
    repo.files.update({"model-00001-of-00002.safetensors": b"mine", "models/model.safetensors": b"mine, too"})
    assert "me/run holds model-00001-of-00002.safetensors and no recipe.yaml" in refusal(capsys, run)
    assert repo.commits == []
    repo.files["recipe.yaml"] = b""  # of an earlier push
    assert push(run) == 0
    assert set(repo.files) == {*UNDRAWN, "models/model.safetensors"}


def test_a_branch_is_made_and_main_left_alone(hub, run, undrawn, capsys):
    assert push(run, "--revision", "v1/first") == 0
    repo = hub.repos["me/run"]
    assert (set(repo.branches["v1/first"]), repo.files) == (UNDRAWN, {})
    assert f"{hub.url}/me/run/tree/v1/first" in capsys.readouterr().out


def test_the_recipe_says_where_to(hub, run, undrawn):
    with (run / "recipe.yaml").open("a") as file:
        file.write("hub_model_id: me/from-recipe\nhub_private_repo: false\nhub_revision: v2\n")
    assert push(run) == 0
    repo = hub.repos["me/from-recipe"]
    assert repo.private is False
    assert set(repo.branches["v2"]) == UNDRAWN


def test_a_run_that_has_not_ended_is_pushed_from_its_newest_whole_checkpoint(hub, tmp_path, undrawn):
    run = tmp_path / "run"
    for step in (8, 4, 6):
        write_run(run / f"checkpoint-{step}", points=[(2, 0.5, 20.0, 0.8), (step, 0.6, 18.0, 0.6)], max_steps=20)
    weights = run / "checkpoint-8" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-10])  # a kill while it was written
    write_recorded(run)
    (run / "recipe.yaml").write_text(RECIPE)
    evaluate(tmp_path / default_folder(str(run / "checkpoint-6")), run / "checkpoint-6")
    assert push(run) == 0
    files = hub.repos["me/run"].files
    assert ModelCard(files["README.md"].decode()).data.eval_results[0].metric_value == 75.0
    assert json.loads(files["trainer_state.json"])["global_step"] == 6
    assert "trained for 6 optimizer steps of 20" in files["README.md"].decode()
    assert not any("checkpoint" in name for name in files)


def test_a_run_that_went_on_after_its_end_is_pushed_from_where_it_is_now(hub, run, undrawn):
    write_run(run / "checkpoint-8")
    write_run(run / "checkpoint-10", points=[(10, 0.6, 18.0, 0.6)])
    assert push(run) == 0
    assert json.loads(hub.repos["me/run"].files["trainer_state.json"])["global_step"] == 10


def test_a_placed_file_whose_name_fits_two_patterns_can_be_edited_without_changing_the_run(run, tmp_path):
    (run / "tokenizer.model").write_bytes(bytes(2**21))
    (tmp_path / "staged").mkdir()
    staging.place_run(run, run, tmp_path / "staged")
    with (tmp_path / "staged" / "tokenizer.model").open("ab") as file:
        file.write(b"1")
    assert (run / "tokenizer.model").stat().st_size == 2**21


def test_a_checkpoint_takes_the_recipe_beside_it(hub, tmp_path, undrawn):
    run = tmp_path / "run"
    write_run(run / "checkpoint-4", recipe="")
    write_recorded(run)
    (run / "recipe.yaml").write_text(RECIPE)
    assert push(run / "checkpoint-4", "--repo_id", "me/four") == 0
    assert hub.repos["me/four"].files["recipe.yaml"].decode() == RECIPE


def test_out_makes_the_folder_and_uploads_nothing(hub, run, tmp_path, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    assert push(run, "--out", tmp_path / "seen") == 0
    assert {file.name for file in (tmp_path / "seen").iterdir()} == EXPECTED
    assert hub.repos == {}
    (tmp_path / "seen" / "recipe.yaml").write_text("edited")
    assert (run / "recipe.yaml").read_text() == RECIPE


def test_without_matplotlib_curves_and_report_are_left_out_and_that_is_said(hub, run, undrawn, capsys):
    assert push(run) == 0
    said = capsys.readouterr().out
    assert "No curves.png: it needs matplotlib" in said
    assert "No report.html: it needs scipy and matplotlib and jinja2" in said
    card = hub.repos["me/run"].files["README.md"].decode()
    assert "curves.png" not in card
    assert "report.html" not in card


# Evaluations and the licence in the card


def evaluate(folder, run, answers=([(True, 10), (True, 20)], [(True, 10), (False, 20)])):
    """A finished evaluation of the weights in `run`: by default 3 of 4 answers right, 15 tokens on average."""
    write_evaluation(folder, {"gsm8k": answers}, run)
    settings = json.loads((folder / "settings.json").read_text())
    settings |= {"fingerprint": fingerprint(run), "temperature": 0.4, "top_p": 0.95, "repetition_penalty": 1.05,
                 "max_new_tokens": 64, "backend": "transformers"}  # fmt: skip
    write_summary(folder, summarize(settings, read_samples(folder / "samples.jsonl")[0]))
    return folder


def test_evaluation_results_stand_in_the_model_index_and_in_the_text(hub, run, tmp_path):
    assert push(run, "--evaluation", evaluate(tmp_path / "evaluation", run)) == 0
    card = ModelCard(hub.repos["me/run"].files["README.md"].decode())
    results = {result.metric_type: result for result in card.data.eval_results}
    assert results["accuracy"].metric_value == 75.0
    assert results["completion_length"].metric_value == 15.0
    assert (results["accuracy"].dataset_name, results["accuracy"].dataset_type) == ("GSM8K", "openai/gsm8k")
    assert results["accuracy"].metric_args["num_samples"] == 2
    assert card.data.model_name == "run"
    assert re.search(r"\| GSM8K +\| +75\.0 \|", card.text)
    assert str(tmp_path) not in card.content


def test_a_problem_without_a_verdict_counts_in_the_length_alone(run, tmp_path):
    summary = read_summary(evaluate(tmp_path / "evaluation", run, [[(True, 10)], [(None, 20)]]))
    counted = [result.metric_name.rpartition(", ")[2] for result in eval_results(summary)]
    assert counted == ["of 1 problems", "of 2 problems"]


def test_an_evaluation_in_its_usual_place_is_found(hub, run, tmp_path):
    evaluate(tmp_path / "runs" / "evaluation" / f"{tmp_path.name.replace('-', '_')}_run", run)
    place = tmp_path / default_folder(str(run))
    assert place.is_dir(), place
    push(run)
    assert ModelCard(hub.repos["me/run"].files["README.md"].decode()).data.eval_results[0].metric_value == 75.0


def test_an_evaluation_of_other_weights_is_refused(hub, run, tmp_path, capsys):
    other = write_run(tmp_path / "other", recipe=RECIPE)
    (other / "config.json").write_text(json.dumps(json.loads((other / "config.json").read_text()) | {"x": 1}))
    evaluate(tmp_path / "evaluation", other)
    capsys.readouterr()
    assert "measured other weights" in refusal(capsys, run, "--evaluation", tmp_path / "evaluation")
    summary = read_summary(tmp_path / "evaluation")
    summary["settings"] |= {"model": "deepseek-ai/R1", "fingerprint": None}  # of a Hub model no files were read
    write_summary(tmp_path / "evaluation", summary)
    assert "measured other weights" in refusal(capsys, run, "--evaluation", tmp_path / "evaluation")
    assert hub.repos == {}


def test_the_licence_of_the_base_is_asked_of_the_hub(hub, run):
    link = "https://example.org/licence"
    hub.repos["some-org/base-model"] = Repo(
        card={"license": "other", "license_name": "base-licence", "license_link": link}
    )
    assert push(run) == 0
    card = ModelCard(hub.repos["me/run"].files["README.md"].decode())
    assert (card.data.license, card.data.license_name, card.data.license_link) == ("other", "base-licence", link)
    assert f"[base-licence]({link})" in card.text


def test_the_lines_of_the_docs_push(hub, tmp_path, undrawn):
    text = (Path(__file__).parents[3] / "docs" / "hub.md").read_text(encoding="utf-8")
    lines = re.search(r"```sh\n(.+?)```", text, re.DOTALL)[1].splitlines()
    write_run(tmp_path / "runs" / "ces")
    write_adapter_run(tmp_path / "runs" / "lora", tmp_path / "base")
    evaluate(tmp_path / "runs" / "evaluation" / "runs_lora", tmp_path / "runs" / "lora")
    for line in lines:
        assert main(shlex.split(line)[1:]) == 0, line
    assert {name: repo.private for name, repo in hub.repos.items()} == {
        "me/ces": True,
        "me/r1-ces": False,
        "me/lora": True,
    }
    assert "model.safetensors" in hub.repos["me/lora"].files
    assert (tmp_path / "to-push" / "README.md").is_file()


# Failures on the way


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("POST", "/commit/", 409), ("POST", "/commit/", 500), ("PUT", "/lfs/", 403), ("POST", "/repos/create", 503)],
)
def test_a_push_that_fails_says_why_and_how_to_repeat_it(hub, run, undrawn, capsys, method, path, status):
    hub.fail(method, path, status, times=100)
    assert push(run) == 1
    said = capsys.readouterr().out
    assert f"The push to the Hub failed: the test wants {status} ({status}).\n" in said
    assert f"\n  trl-ces push {run} --repo_id run\n" in said


def test_an_upload_that_was_broken_off_is_resumed_by_the_command_it_prints(hub, run, undrawn, capsys):
    hub.fail("POST", "/commit/", 502)
    assert push(run, "--revision", "v1") == 1
    said = capsys.readouterr().out
    command = shlex.split(said[said.index("  trl-ces push") :].splitlines()[0])
    assert command == ["trl-ces", "push", str(run), "--repo_id", "run", "--revision", "v1"]
    sent, size = weights_sent(hub, run)
    assert sent == size
    assert not list(run.glob("_push-*"))
    assert main(command[1:]) == 0
    assert set(hub.repos["me/run"].branches["v1"]) == UNDRAWN
    assert weights_sent(hub, run) == (size, size)  # they had arrived


def test_the_line_that_retries_repeats_every_option(run):
    job = Push(run, run, "me/run", False, "v1", True, [run / "one", run / "two"])
    assert shlex.split(job.command()) == [
        "trl-ces", "push", str(run), "--repo_id", "me/run", "--merge", "--public", "--revision", "v1",
        "--evaluation", str(run / "one"), str(run / "two"),
    ]  # fmt: skip


def test_what_the_hub_refuses_is_a_sentence_in_its_own_words(hub, run, undrawn, capsys, monkeypatch):
    said = refusal(capsys, run, "--repo_id", "others/run")
    assert (
        "others/run cannot be opened: You don't have the rights to create a model under this namespace (403)." in said
    )
    hub.fail("POST", "/branch/", 400)
    assert "run cannot be opened: the test wants 400 (400). Check its name" in refusal(capsys, run, "--revision", "v1")
    monkeypatch.setenv("HF_TOKEN", "hf_aTokenFromLongAgo000000000")
    said = refusal(capsys, run)
    assert "run cannot be opened: Invalid credentials in Authorization header (401)." in said
    assert "hf_aToken" not in said


# Refused before any request


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["nowhere"], "nowhere holds no trained weights"),
        (["{run}", "--repo_id", "a/b/c"], "'a/b/c' is not a repository name"),
        (["{run}", "--merge"], "holds a full model, not an adapter"),
        (["{run}", "--evaluation", "{run}"], "holds no intact summary.json"),
        (["{run}", "--out", "{run}"], "already exists"),
        (["{run}", "--out", "{run}/recipe.yaml/new"], "cannot be made (Not a directory): name a new folder"),
        (["{run}", "--privat"], "Unrecognized arguments: --privat"),
    ],
)
def test_what_cannot_be_pushed_is_refused_in_a_sentence(hub, run, undrawn, capsys, words, part):
    assert part in refusal(capsys, *[word.format(run=run) for word in words])
    assert hub.requests.total() == 0


def test_damaged_and_missing_files_are_refused(hub, run, undrawn, capsys):
    weights = (run / "model.safetensors").read_bytes()
    (run / "model.safetensors").write_bytes(weights[:-10])
    assert "incomplete metadata, file not fully covered" in refusal(capsys, run)
    (run / "model.safetensors").unlink()
    assert "holds no trained weights" in refusal(capsys, run)
    (run / "model.safetensors").write_bytes(weights)
    for name in ("run.json", "recipe.yaml"):
        (run / name).unlink()
        assert f"{run} holds no {name}: name an output directory" in refusal(capsys, run)
    assert hub.requests.total() == 0


def test_without_token_or_network_there_is_no_push(hub, run, undrawn, capsys, monkeypatch):
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(run / "none"))
    assert "There is no token for the Hub: run `hf auth login`" in refusal(capsys, run)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert "HF_HUB_OFFLINE is set" in refusal(capsys, run)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (f"env: {{HF_TOKEN: {TOKEN}}}\n", "your token for the Hub"),
        ("env: {WANDB_API_KEY: fromTheEnvironment1}\n", "WANDB_API_KEY"),
        ("env: {MY_PASSWORD: ofThisRecipe12}\n", "MY_PASSWORD"),
        ("env: {OTHER: hf_aaaaaaaaaaBBBBBBBBBBcccccccccc}\n", "what looks like a token"),
        ("env: {OTHER: github_pat_11AAAAAAA0BBBBBBBBBB_ccccccccccccccccccccccc}\n", "what looks like a token"),
    ],
)
def test_a_token_in_a_file_is_not_uploaded(hub, run, undrawn, capsys, monkeypatch, line, what):
    monkeypatch.setenv("WANDB_API_KEY", "fromTheEnvironment1")
    with (run / "recipe.yaml").open("a") as file:
        file.write(line)
    said = refusal(capsys, run)
    assert f"recipe.yaml holds {what}" in said
    assert "Environment1" not in said
    assert "ofThis" not in said
    assert TOKEN not in said
    assert "BBBB" not in said
    assert hub.objects == {}


def test_a_token_in_a_chat_template_is_not_uploaded(hub, run, undrawn, capsys):
    (run / "chat_template.jinja").write_text("{# hf_aaaaaaaaaaBBBBBBBBBBcccccccccc #}")
    assert "chat_template.jinja holds what looks like a token" in refusal(capsys, run)
    assert hub.objects == {}


def test_settings_about_tokens_are_no_secrets(hub, run, undrawn):
    with (run / "recipe.yaml").open("a") as file:
        file.write("env: {TOKENIZERS_PARALLELISM: quite-false, MAX_BATCHED_TOKENS: 123456789}\n")
    assert push(run) == 0


def test_what_a_killed_push_left_is_removed(run):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    (run / f"_push-{dead.pid}-abc").mkdir()
    (run / f"_push-{os.getppid()}-abc").mkdir()  # of a process that lives
    with staging.stage(run) as folder:
        left = sorted(place.name for place in run.glob("_push-*"))
    assert left == sorted([f"_push-{os.getppid()}-abc", Path(folder).name])
    assert not Path(folder).exists()


def test_the_command_finds_the_hub_by_HF_ENDPOINT(run, tmp_path):
    with Hub() as hub:
        environment = {name: value for name, value in os.environ.items() if name != "HF_HUB_OFFLINE"}
        environment |= {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HOME": str(tmp_path)}
        command = [sys.executable, "-m", "trl_ces.cli.main", "push", str(run), "--repo_id", "me/outside"]
        result = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200, check=False)
        assert result.returncode == 0, result.stderr
        assert set(hub.repos["me/outside"].files) == EXPECTED
        assert f"Pushed to {hub.url}/me/outside" in result.stdout
        assert TOKEN not in result.stdout + result.stderr
