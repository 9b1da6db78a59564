"""How the tests run each command of the docs, or why they do not.

A command of README.md, CONTRIBUTING.md or docs/ that is in neither table fails tests/docs/test_docs_run.py.
"""

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Here:
    """
    How a command is run here.

    Args:
        replaced (`dict[str, str]`): Parts of the command and their replacements; each part must occur.
        added (`str`): Words at the end.
        leaves (`tuple[str, ...]`): Files that it writes.
        says (`str`): Pattern of its output.
        slow (`bool`): Takes over 20 seconds even so.
    """

    replaced: dict[str, str] = field(default_factory=dict)
    added: str = ""
    leaves: tuple[str, ...] = ()
    says: str = ""
    slow: bool = False


def trained(folder, replaced=None, added=""):
    """Trains two steps and saves the model."""
    leaves = tuple(f"{folder}/{name}" for name in ("model.safetensors", "trainer_state.json", "recipe.yaml"))
    return Here(replaced or {}, f"{added} --max_steps 2 --logging_steps 1 --save_strategy no".strip(), leaves)


# A recipe for GPUs: a tiny model on this CPU, our problems in the data set's columns, generation by transformers.
ON_THIS_CPU = (
    "--model_name_or_path tiny --dataset_name problems.jsonl --max_train_samples 24 --use_vllm false "
    "--vllm_enable_sleep_mode false --use_cpu true --attn_implementation sdpa --bf16 false "
    "--gradient_checkpointing false --max_completion_length 8 --learning_rate 1e-4"
)
# The small world's model is here; it need not learn anything.
SMALL_WORLD = "--per_device_train_batch_size 32 --steps_per_generation 1 --max_completion_length 16"
R1_7B, R1 = "outputs/R1-7B", "outputs/R1-1.5B"
EVALUATED = "--backend transformers --max_problems 2 --num_samples 1 --max_new_tokens 4"
SUMMARY = ("summary.json", "table.md", "samples.jsonl")
FORKS = r"likelier branch"


def evaluated(folder, replaced=None, added=EVALUATED, says=r"\| AIME24"):
    return Here(replaced or {}, added, tuple(f"{folder}/{name}" for name in SUMMARY), says)


RUN = {
    # Training
    "trl-ces train --config smollm2_135m": trained(
        "outputs/smollm2_135m", added="--model_builder null --model_name_or_path tiny --max_completion_length 8"
    ),
    "trl-ces train --config R1-7B --accelerate_config zero3_offload": trained(
        R1_7B, {"--accelerate_config zero3_offload": ""}, ON_THIS_CPU
    ),
    "trl-ces train --config R1-7B --accelerate_config zero3 --num_processes 8 --responses_per_step 8": trained(
        R1_7B, {"--accelerate_config zero3": "", "--num_processes 8": "--num_processes 1"}, ON_THIS_CPU
    ),
    "trl-ces train --config my.yaml --shaping none --max_steps 100": trained(R1, {"--max_steps 100": ""}, ON_THIS_CPU),
    r"trl-ces train --config my.yaml --dataset_name gsm8k/train.jsonl --solution_pattern '####\s*(.+)'": trained(
        R1,
        added=ON_THIS_CPU.replace("--dataset_name problems.jsonl ", "--solution_column answer "),
    ),
    "trl-ces train --config arithmetic --reward_funcs my_rewards.short_accuracy_reward "
    "--output_dir runs/mine": trained("runs/mine", added=SMALL_WORLD),
    "trl-ces train --config arithmetic alp": trained("outputs/arithmetic-alp", added=SMALL_WORLD),
    "trl-ces train --config arithmetic --reward_funcs trl_ces.lab.tasks.arithmetic.arithmetic_accuracy_reward "
    "get_kimi_length_reward --output_dir runs/ces_kimi": trained("runs/ces_kimi", added=SMALL_WORLD),
    "trl-ces train --config arithmetic ces_without_entropy_gradient": trained(
        "outputs/arithmetic-ces_without_entropy_gradient", added=SMALL_WORLD
    ),
    "trl-ces train --config arithmetic --ces_beta_correct 1.0 --output_dir runs/arithmetic/beta1": trained(
        "runs/arithmetic/beta1", added=SMALL_WORLD
    ),
    "trl-ces recipes": Here(says="entropy_advantage"),
    "trl-ces recipes show R1-7B alp": Here(says="get_alp_length_reward"),
    "trl-ces quickstart": Here(
        leaves=("runs/quickstart/quickstart.png", "runs/quickstart/ces/model.safetensors"),
        says="CES against DAPO: accuracy",
        slow=True,
    ),
    "trl-ces study --config arithmetic --jobs 2": Here(
        {"arithmetic": "small_study.yaml"},
        leaves=("runs/study/small/results.csv", "runs/study/small/comparison.md"),
        says="CES",
        slow=True,
    ),
    # Before a training
    "trl-ces inspect --config arithmetic": Here(added="--num_samples 2", says=FORKS),
    "trl-ces inspect --model MODEL --prompt 37+48:": Here({"MODEL": "runs/base30"}, says=FORKS),
    "trl-ces inspect --model MODEL --data problems.jsonl --num_prompts 64": Here(
        {"MODEL": "tiny", "64": "4"}, "--max_new_tokens 8", says=FORKS
    ),
    "trl-ces inspect --config arithmetic --model runs/base30 --num_prompts 64 --max_new_tokens 128 --top 5": Here(
        {"64": "4"}, says=FORKS
    ),
    'python -c "from trl_ces.lab.tasks.arithmetic_model import build_base_model; '
    "build_base_model('runs/base30')\"": Here(
        {"runs/base30'": "runs/new', steps=2"}, leaves=("runs/new/model.safetensors",)
    ),
    "trl-ces train --config my.yaml --shaping my_rule:rule --shaping_kwargs '{gamma: 0.2}'": trained(
        R1, {}, ON_THIS_CPU
    ),
    "trl-ces check my_rule:rule": Here(says="number of processes change nothing"),
    # After it
    "trl-ces report runs/study/arithmetic --out report.html": Here(leaves=("report.html",), says="Wrote report.html"),
    "trl-ces report runs/study/arithmetic --tokens 64 --out report.html": Here(
        {"64": "2"}, leaves=("report.html",), says=r"Wrote report.html"
    ),
    # Evaluation
    "trl-ces eval --config paper --model runs/ces --data_dir data --output_dir runs/ces_eval": evaluated(
        "runs/new", {"runs/ces --data": "tiny --data", "runs/ces_eval": "runs/new"}
    ),
    "trl-ces eval --config paper --model deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B --data_dir data "
    "--output_dir runs/r1": evaluated("runs/r1", {"deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B": "tiny"}),
    "trl-ces eval --config code --model MODEL --data_dir data --allow_code_execution": evaluated(
        "runs/evaluation/*", {"MODEL": "tiny"}, says="MBPP"
    ),
    "trl-ces compare runs/r1 runs/ces_eval --names R1-1.5B CES": Here({"runs/r1": "runs/base_eval"}, says=r"R1-1\.5B"),
    # Measurements, small
    "OMP_NUM_THREADS=1 trl-ces bench update_step --parts unequal --repeats 3": Here(
        {"--repeats 3": "--repeats 1"}, "--shape tiny --rows 4 --longest 60 --micro_batches 2", says=r"^\| 2 \|"
    ),
    "OMP_NUM_THREADS=1 trl-ces bench shaping": Here(added="--rows 2 --tokens 300 --repeats 1", says=r"\| 2 x 300 \|"),
    "OMP_NUM_THREADS=1 trl-ces bench grading --repeats 3": Here(
        {"--repeats 3": "--repeats 1"}, "--answers 30 --hostile 5", says="4 rewards of 0, 1 without a verdict, 0 of 1"
    ),
    "OMP_NUM_THREADS=1 trl-ces bench first_ratio": Here(
        added="--shape tiny --rows 4 --longest 60", says=r"as the update sees them \| \d+ \| 0\.0e\+00"
    ),
}

NETWORK = "fetches packages from an index and changes the environment that the tests run in"
MAKE = "makes a virtual environment of its own"
PUSHED = "tests/lab/hub/test_push.py::test_the_lines_of_the_docs_push"
EXAMPLE = "tests/docs/test_docs_examples.py::test_an_example_trains_and_saves_from_the_command_line"
PLANNED = "tests/docs/test_plan_docs.py::test_the_document_shows_what_the_command_prints"
# Reasons. If another test runs the command, its name, which must exist.
TUTORIAL = "tests/docs/test_docs_run.py::test_the_tutorial_runs_from_its_first_line_to_its_last"
NOT_RUN = {
    "python make_problems.py": TUTORIAL,
    "trl-ces inspect --config mine.yaml cpu.yaml --data test.jsonl --num_prompts 12 --tau 0.05 --top 3": TUTORIAL,
    "trl-ces plan --config mine.yaml ces_correct_only lora --gpus 1 --gpu_memory 24 --device RTX4090": TUTORIAL,
    "trl-ces train --config mine.yaml ces_correct_only cpu.yaml --ces_tau 0.05 --output_dir runs/mine": TUTORIAL,
    "trl-ces inspect --config mine.yaml cpu.yaml --data test.jsonl --num_prompts 12 --tau 0.05 --top 3 "
    "--model runs/mine": TUTORIAL,
    "trl-ces plan --config R1-7B --gpus 2 --gpu_memory 80 --accelerate_config zero3_offload": PLANNED,
    "trl-ces bench gpu": "tests/cli/test_bench.py::test_every_part_of_the_gpu_benchmark_runs_on_a_cpu",
    **dict.fromkeys(
        (f"trl-ces {verb} --config mine.yaml base.yaml" for verb in ("inspect", "train")),
        "tests/docs/test_docs_run.py::test_the_builder_of_text_prompts_serves_a_base_model",
    ),
    "trl-ces train --config arithmetic --model_name_or_path runs/checks "
    "--model_builder_kwargs '{check_probability: 0.45}'": (
        "tests/lab/tasks/test_arithmetic.py::test_the_builder_makes_what_is_asked_for_once_and_never_over_another"
    ),
    "make test": f"{MAKE}; runs this test",
    "make test-slow": f"{MAKE}; runs this test",
    "make test-mutations": f"{MAKE}; takes about 40 minutes",
    "make coverage": f"{MAKE}; runs this test",
    "make test-vllm": f"{MAKE}, of 3 GB",
    "make test-upgrades": f"{MAKE} for each version",
    "make docs": f"{MAKE}; the site is built by tests/docs/test_docs_site.py",
    "make format": "rewrites the files of the checkout; `make test` runs the same ruff to check them",
    "make quickstart": f"{MAKE}, then runs `trl-ces quickstart`, which is run",
    "pip install torch": NETWORK,
    "pip install -e .[lab,quickstart]": NETWORK,
    "pip install -c constraints-gpu.txt -e .[lab,vllm,deepspeed,flash]": NETWORK,
    "python docs/examples/drop_in.py --model HuggingFaceTB/SmolLM2-135M-Instruct --output_dir runs/drop_in "
    "--use_cpu": EXAMPLE,
    "trl-ces train --config R1-7B colocate --accelerate_config zero3 --num_processes 8": (
        "tests/train/test_recipes.py::test_the_cluster_recipes_keep_their_batches_on_the_processes_they_are_for"
    ),
    "trl-ces train --config R1-7B --accelerate_config zero3 --num_processes 4": (
        "tests/engines/test_recipes_launched.py"
        "::test_an_r1_recipe_trains_a_rollout_under_its_engine_and_the_saved_model_answers"
    ),
    "trl-ces train --config R1-7B server --accelerate_config zero3 --num_processes 8 --vllm_server_host NODE": (
        "tests/engines/test_server.py::test_two_processes_and_two_machines_make_of_a_rollout_what_one_process_makes"
    ),
    "trl-ces train --config R1-7B server --accelerate_config zero3_multinode --main_process_ip 10.0.0.1 "
    "--machine_rank 0 --vllm_server_host 10.0.0.3": (
        "tests/engines/test_slurm_training.py"
        "::test_a_job_that_is_killed_and_requeued_ends_with_the_weights_of_one_that_is_not"
    ),
    **dict.fromkeys(
        (f"trl-ces train --config R1-{size} lora" for size in ("1.5B", "7B")),
        "tests/train/test_recipes.py::test_lora_goes_into_every_linear_layer",
    ),
    "trl-ces push runs/ces": PUSHED,
    "trl-ces push runs/ces --repo_id me/r1-ces --public": PUSHED,
    "trl-ces push runs/lora --merge --evaluation runs/evaluation/runs_lora": PUSHED,
    "trl-ces push runs/ces --out to-push": PUSHED,
}
