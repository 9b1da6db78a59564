"""What the report reads from the folders of runs, and what it says of folders that lack something."""

import json

import pytest
from report_runs import FIELDS, POINTS, STUDY, write_evaluation, write_study, write_training

from trl_ces.lab.report.runs import read_runs, runs_below, short_names
from trl_ces.lab.report.trainings import Training
from trl_ces.support.errors import UserError
from trl_ces.train.recipe import compose


def test_a_folder_of_none_of_the_commands_is_refused_with_what_each_of_them_writes(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match=r"photos holds no run: .*trainer_state.json.*results.csv"):
        read_runs([tmp_path / "photos"])
    with pytest.raises(UserError, match="nowhere does not exist"):
        read_runs([tmp_path / "nowhere"])


def test_a_folder_of_runs_stands_for_the_runs_in_it(tmp_path):
    runs = [write_training(tmp_path / "outputs" / name, POINTS) for name in ("ces", "dapo")]
    (tmp_path / "outputs" / "photos").mkdir()
    assert runs_below(tmp_path / "outputs") == runs
    assert runs_below(runs[0]) == [runs[0]]
    assert runs_below(tmp_path / "outputs" / "photos") == [tmp_path / "outputs" / "photos"]  # refused by its name


def test_a_training_is_read_with_its_pace_in_problems(tmp_path):
    folder = write_training(tmp_path / "ces", POINTS, "max_train_samples: 1280\nseed: 3\nshaping: ces\n", max_steps=16)
    (training,) = read_runs([folder]).trainings
    assert (training.method, training.seed, training.curve["length"]) == ("ces", 3, [20.0, 18.0, 15.0, 12.0])
    assert training.curve["entropy"] == pytest.approx([0.8, 0.6, 0.4, 0.2])
    assert training.samples_per_step == 1280 * 0.5 / 8  # half an epoch in 8 steps
    plain = write_training(tmp_path / "plain", POINTS)
    assert read_runs([plain]).trainings[0].samples_per_step is None


def test_an_unfinished_training_is_shown_up_to_its_newest_checkpoint_and_named(tmp_path):
    folder = tmp_path / "ces"
    write_training(folder / "checkpoint-4", POINTS[:2])
    write_training(folder / "checkpoint-12", POINTS, max_steps=20, step=12)
    found = read_runs([folder])
    assert found.trainings[0].curve["step"] == [2, 4, 6, 8]
    (note,) = found.notes
    assert "is unfinished: shown up to its checkpoint at step 12 of 20" in note
    assert "--resume_from_checkpoint true" in note
    write_training(folder, POINTS[:3])  # it went on after an end
    write_training(folder / "checkpoint-14", POINTS)
    (folder / "checkpoint-14" / "trainer_state.json").write_text('{"log_hist')  # a kill while it was written
    again = read_runs([folder])
    assert (again.trainings[0].curve["step"], again.notes) == ([2, 4, 6, 8], [note])


def test_a_run_whose_accuracy_cannot_be_told_is_left_out_with_the_way_to_tell_it(tmp_path):
    folder = write_training(tmp_path / "ces", POINTS, reward="style")
    state = json.loads((folder / "trainer_state.json").read_text())
    state["log_history"][0]["rewards/other/mean"] = 1.0
    (folder / "trainer_state.json").write_text(json.dumps(state))
    with pytest.raises(UserError, match=r"nothing to report yet.*the accuracy is ambiguous among its rewards"):
        read_runs([folder])
    (folder / "recipe.yaml").write_text("ces_accuracy_reward: style\n")
    assert read_runs([folder]).trainings[0].curve["accuracy"] == [0.5, 0.6, 0.7, 0.8]


def test_a_damaged_log_is_named(tmp_path):
    folder = write_training(tmp_path / "ces", POINTS)
    (folder / "trainer_state.json").write_text('{"log_hist')
    with pytest.raises(UserError, match=r"trainer_state.json is damaged"):
        read_runs([folder])


def test_a_study_is_read_with_its_runs_wherever_it_was_moved(tmp_path):
    folder = write_study(tmp_path / "study")
    write_training(folder / "ces" / "seed-1", POINTS, "max_train_samples: 64\n")
    (study,) = read_runs([folder]).studies
    assert (study.part(""), list(study.runs["method"].unique())) == ("study", list(STUDY))
    assert list(study.runs[study.runs["method"] == "CES"]["accuracy"]) == [0.75, 0.65]
    assert (study.baseline("DAPO"), study.baseline("CES"), study.baseline("nobody")) == ("DAPO", "CES", "DAPO")
    paces = {(run.method, run.seed): run.samples_per_step for run in study.trainings}
    assert paces == dict.fromkeys(paces, None) | {("CES", 1): 8.0}
    assert study.trainings[-1].curve["length"] == [21.0, 19.0, 16.0, 13.0]
    assert study.command == "trl-ces study --config mine"


def test_a_study_that_has_not_ended_shows_the_logs_of_the_runs_that_have(tmp_path):
    folder = write_study(tmp_path / "study", curves=False)
    write_training(folder / "ces" / "seed-1", POINTS, "max_train_samples: 64\n")
    found = read_runs([folder])
    (training,) = found.studies[0].trainings
    assert (training.method, training.seed, training.samples_per_step) == ("CES", 1, 8.0)
    assert training.curve["length"] == [20.0, 18.0, 15.0, 12.0]
    assert not [note for note in found.notes if "curves" in note]


def test_a_results_file_alone_is_enough_and_its_missing_curves_are_named(tmp_path):
    folder = write_study(tmp_path / "study", curves=False)
    (folder / "results.csv").rename(tmp_path / "arithmetic.csv")
    found = read_runs([tmp_path / "arithmetic.csv"])
    assert found.studies[0].name == "arithmetic"
    assert found.studies[0].trainings == []
    assert "no curves.csv beside it" in found.notes[0]
    assert "`trl-ces study --config mine`" in found.notes[0]


def test_what_a_study_has_begun_and_not_finished_is_named(tmp_path):
    study = {**STUDY, "DAPO": STUDY["DAPO"][:1]}
    folder = write_study(tmp_path / "study", study)
    begun = folder / "dapo" / "seed-1"
    begun.mkdir(parents=True)
    (begun / "recipe.yaml").write_text("seed: 1\n")
    whole = folder / "before_training" / "seed-1"  # one model for all seeds is measured once: it needs no row
    whole.mkdir(parents=True)
    for file in ("recipe.yaml", "training.json"):
        (whole / file).write_text("{}")
    notes = " ".join(read_runs([folder]).notes)
    assert "not finished, and left out: dapo/seed-1. `trl-ces study --config mine` goes on" in notes
    assert "DAPO has no finished run of seed 1" in notes
    (folder / "results.csv").unlink()
    with pytest.raises(UserError, match="a study with no finished run"):
        read_runs([folder])


def test_an_unfinished_evaluation_is_named_and_the_rest_is_shown(tmp_path):
    answers = {"aime24": [[(True, 10), (True, 12)]]}
    half = write_evaluation(tmp_path / "half", answers, whole=False)
    whole = write_evaluation(tmp_path / "whole", answers)
    found = read_runs([half, whole])
    assert [run.name for run in found.evaluations] == ["whole"]
    assert "1 of 2 completions" in found.notes[0]
    with pytest.raises(UserError, match=r"nothing to report yet.*1 of 2 completions"):
        read_runs([half])


def test_runs_are_called_by_as_much_of_their_path_as_tells_them_apart(tmp_path):
    assert short_names([tmp_path / "a" / "ces", tmp_path / "a" / "dapo"]) == ["ces", "dapo"]
    assert short_names([tmp_path / "ces" / "seed-0", tmp_path / "dapo" / "seed-0"]) == ["ces/seed-0", "dapo/seed-0"]
    assert short_names([tmp_path / "v1.5"]) == ["v1.5"]


def test_an_ablation_is_not_the_whole_of_ces():
    def is_whole(fields):
        return Training("CES", 0, None, {}, fields, None).is_whole_ces

    assert [is_whole(fields) for fields in FIELDS.values()] == [False, False, True]
    assert is_whole(compose(["arithmetic"]))
    assert is_whole({"reward_funcs": ["accuracy_reward"]})  # CESConfig's defaults
    ablations = {"ces_beta_correct": -0.4, "ces_beta_incorrect": 0.0, "ces_entropy_gradient": False}
    for name, value in {**ablations, "ces_cap_incorrect": 0.1}.items():
        assert not is_whole({"shaping": "ces", name: value})


def test_a_damaged_evaluation_is_refused_whatever_its_folder_is_called(tmp_path):
    answers = {"aime24": [[(True, 10)]]}
    whole, damaged = write_evaluation(tmp_path / "whole", answers), write_evaluation(tmp_path / "go on", answers)
    (damaged / "samples.jsonl").write_text("{}\n")
    with pytest.raises(UserError, match="line 1 was not written by this version"):
        read_runs([whole, damaged])
