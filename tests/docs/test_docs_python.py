"""Check that Python code in the docs imports existing names and behaves as documented."""

import pytest
from datasets import Dataset
from docs_blocks import DOCS, PAGES, blocks, check_python
from fixtures_evaluation import write_model


def python_cases():
    return [
        pytest.param(block, id=f"{page.name} {number}")
        for page in PAGES
        for number, block in enumerate(blocks(page, "python"), 1)
    ]


@pytest.mark.parametrize("code", python_cases())
def test_python_in_the_docs_imports_existing_names(code):
    check_python(code)


def test_the_quickstart_script_trains(tmp_path, monkeypatch):
    code = next(block for block in blocks(DOCS / "quickstart.md", "python") if "trainer.train()" in block)
    model = write_model(tmp_path / "tiny")
    changes = {
        '"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B"': repr(str(model)),
        'output_dir="r1-1.5b-ces"': f"output_dir={str(tmp_path / 'out')!r}, use_cpu=True, bf16=False, max_steps=1, "
        "per_device_train_batch_size=4, report_to='none', save_strategy='no'",
        "max_completion_length=12000": "max_completion_length=8",
    }
    for original, replacement in changes.items():
        assert code.count(original) == 1
        code = code.replace(original, replacement)
    questions = [[{"role": "user", "content": f"{n}+{n}"}] for n in range(24)]
    rows = Dataset.from_dict({"prompt": questions, "solution": [str(2 * n) for n in range(24)]})
    monkeypatch.setattr(
        "datasets.load_dataset", lambda name, split: {"trl-lib/DeepMath-103K": {"train": rows}}[name][split]
    )
    namespace = {}
    exec(compile(code, "quickstart.md", "exec"), namespace)
    assert namespace["trainer"].state.global_step == 1
    assert "rewards/accuracy_reward/mean" in namespace["trainer"].state.log_history[0]


def test_the_quickstart_diff_only_renames_trl_classes_in_three_lines():
    lines = blocks(DOCS / "quickstart.md", "diff")[0].splitlines()
    assert [line[0] for line in lines] == ["-", "+"] * 3
    for before, after in zip(lines[::2], lines[1::2], strict=True):
        assert before[1:].replace("from trl ", "from trl_ces ").replace("GRPO", "CES") == after[1:]


def test_comments_in_the_first_grading_example_are_correct():
    *_, correct, incorrect = blocks(DOCS / "grading.md", "python")[0].splitlines()
    namespace = {}
    exec("from trl_ces.grading import grade, grade_many", namespace)
    assert (eval(correct, namespace), eval(incorrect, namespace)) == (True, False)
    assert (correct[-4:], incorrect[-5:]) == ("True", "False")


def test_the_reward_for_verl_grades_with_and_without_a_question():
    code = next(block for block in blocks(DOCS / "grading.md", "python") if "compute_score" in block)
    namespace = {}
    exec(compile(code, "grading.md", "exec"), namespace)
    score = namespace["compute_score"]
    question = {"question": r"Find $\sqrt{16} \cdot 3$."}
    assert score("math", r"\boxed{12}", "12", question) == 1.0
    assert score("math", r"\boxed{\sqrt{16} \cdot 3}", "12", question) == 0.0
    assert score("math", r"\boxed{\sqrt{16} \cdot 3}", "12") == 1.0


def test_the_example_reward_in_recipes_md_grades_completions():
    code = next(block for block in blocks(DOCS / "recipes.md", "python") if "short_accuracy_reward" in block)
    namespace = {}
    exec(compile(code, "recipes.md", "exec"), namespace)
    assert namespace["short_accuracy_reward"](["7+8=15#15 ", "#16"], solution=["15", "15"], prompts=None) == [1.0, 0.0]
