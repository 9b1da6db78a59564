"""Push the trained model to the Hugging Face Hub at the end of a run, privately by default."""

import shlex
from pathlib import Path

from huggingface_hub import HfApi, constants, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError
from huggingface_hub.utils import validate_repo_id

from ..config import CESConfig
from ..support.errors import UserError, first_line, hub_errors

# Checkpoints are large. Pickled arguments can execute code and can contain a token.
NOT_PUSHED = ("checkpoint-*", "_*", ".*lock", "training_args.bin")


def check_push(repo_id: str) -> None:
    """Check, without network access, that the repository name is valid and that a token is available."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"{repo_id!r} is not a valid repository name: {first_line(error)}") from None
    if constants.is_offline_mode():
        raise UserError("HF_HUB_OFFLINE prevents the push: unset HF_HUB_OFFLINE, or set `push_to_hub: false`.")
    if get_token() is None:
        raise UserError("No token for the Hub was found: run `hf auth login`, or set HF_TOKEN.")


class Push:
    """
    Push the trained model at the end of a run. This class replaces the Trainer's own push, which creates a public
    repository by default, fails at the start if the Hub is unreachable, and uploads a pickle of all arguments.
    """

    def __init__(self, args: CESConfig):
        self.folder = Path(str(args.output_dir))
        self.repo_id = args.hub_model_id or self.folder.resolve().name
        self.private = args.hub_private_repo is not False
        self.revision = args.hub_revision
        args.push_to_hub = False

    def open(self) -> None:
        """Create the repository before training; raise `UserError` if the repository is public or not writable."""
        try:
            self._create()
        except hub_errors() as error:
            status = error.response.status_code if isinstance(error, HfHubHTTPError) else 500
            if status in (400, 401, 403, 404):
                raise UserError(
                    f"{self.repo_id} cannot be accessed ({first_line(error)}): check `hub_model_id` and whether your "
                    "token has write access, or set `push_to_hub: false`."
                ) from error
            print(f"The Hub is not available ({first_line(error)}); trying again after training.", flush=True)

    def upload(self) -> None:
        """Upload the saved run, or print the command that repeats the push if the upload fails."""
        try:
            self._create()
            HfApi().upload_folder(
                repo_id=self.repo_id,
                folder_path=self.folder,
                revision=self.revision,
                commit_message="Trained with trl_ces",
                ignore_patterns=list(NOT_PUSHED),  # a copy, because the client extends it
            )
            print(f"Pushed to {HfApi().endpoint}/{self.repo_id}.", flush=True)
        except Exception as error:  # a failed push must not fail a finished training run
            print(
                f"The push to the Hub failed ({first_line(error)}). The model is saved; to push it later, run\n"
                f"  {self.command()}",
                flush=True,
            )

    def command(self) -> str:
        """Return the `hf upload` command that repeats the push."""
        words = ["hf", "upload", self.repo_id, str(self.folder), "."]
        words += ["--private"] if self.private else []
        words += ["--revision", self.revision] if self.revision else []
        return shlex.join(words + [word for pattern in NOT_PUSHED for word in ("--exclude", pattern)])

    def _create(self) -> None:
        api = HfApi()
        self.repo_id = api.create_repo(self.repo_id, private=self.private, exist_ok=True).repo_id
        if self.private and not api.model_info(self.repo_id).private:
            raise UserError(
                f"{self.repo_id} is public, but runs are pushed privately by default: set `hub_private_repo: false`, "
                "or set `hub_model_id` to another repository."
            )
        if self.revision is not None:
            api.create_branch(self.repo_id, branch=self.revision, exist_ok=True)
