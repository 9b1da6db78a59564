# /// script
# requires-python = ">=3.11"
# dependencies = ["trl_ces[vllm,flash,lab]"]
#
# [tool.uv.sources]
# trl_ces = { git = "https://REPOSITORY" }
# ///
"""
CES on Hugging Face Jobs, pushed to a private repository; started again, it goes on from the last pushed checkpoint.

    hf jobs uv run --flavor h200 --timeout 24h --secrets HF_TOKEN docs/examples/ces_jobs.py --hub_model_id ME/MODEL

Put the repository's address in place of REPOSITORY above, and your recipe into RECIPE below. Without
`--timeout` the Hub ends a job after its own default, and the job's disk is gone: what has not been pushed is lost.
Further words go to `trl-ces train`. Not yet run as a job.
"""

import argparse
import sys
from pathlib import Path

from huggingface_hub import snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError

from trl_ces.cli.main import main

RECIPE = "R1-1.5B"
OUTPUT = Path("outputs/ces")
# The newest checkpoint is pushed whole. A save is the end of a rollout, as in the recipe, and more frequent.
FIELDS = "--push_to_hub true --hub_private_repo true --hub_strategy checkpoint --save_steps 48"


def last_checkpoint(repository):
    """The folder of the checkpoint that an earlier job has pushed; `None` if there is none."""
    try:
        snapshot_download(repository, allow_patterns="last-checkpoint/*", local_dir=OUTPUT)
    except RepositoryNotFoundError:
        return None
    folder = OUTPUT / "last-checkpoint"
    return folder if (folder / "trainer_state.json").is_file() else None


def words(given):
    """What `trl-ces train` is given."""
    parser = argparse.ArgumentParser(usage=__doc__, allow_abbrev=False)
    parser.add_argument("--hub_model_id", required=True)
    options, rest = parser.parse_known_args(given)
    found = ["--config", RECIPE, "--output_dir", str(OUTPUT), "--hub_model_id", options.hub_model_id, *FIELDS.split()]
    checkpoint = last_checkpoint(options.hub_model_id)
    if checkpoint is not None:
        found += ["--resume_from_checkpoint", str(checkpoint)]
    return [*found, *rest]


if __name__ == "__main__":
    sys.exit(main(["train", *words(sys.argv[1:])]))
