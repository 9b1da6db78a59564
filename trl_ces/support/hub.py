"""What can be told of a push to the Hugging Face Hub without the network."""

from .errors import UserError, first_line


def check_repo(repo_id: str) -> None:
    """
    Whether a push to `repo_id` has a chance.

    Raises:
        UserError: if it is no repository's name, the Hub is switched off, or there is no token.
    """
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"The repository {repo_id!r} is no name of one: {first_line(error)}") from None
    if constants.is_offline_mode():
        raise UserError("HF_HUB_OFFLINE is set, so nothing can be pushed: unset it.")
    if get_token() is None:
        raise UserError("There is no token for the Hub: run `hf auth login`, or set HF_TOKEN.")
