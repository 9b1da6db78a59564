"""Which errors mean that the Hub did not answer, or refused."""


def hub_errors() -> tuple[type[Exception], ...]:
    """Error classes to catch around a call to the Hub: no connection, a refusal, no right to the repository."""
    from huggingface_hub import errors

    # The HTTP library's own base class, for connections that fail before there is an answer. The library is httpx
    # in huggingface_hub 1 and httpx2 in 2, so the class is taken from where huggingface_hub itself imports it.
    return (errors.HfHubHTTPError, errors.HTTPError, OSError)
