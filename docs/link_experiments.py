"""For mkdocs: links to experiments/, which is not part of the site, lead to the repository."""

REPOSITORY = "https://github.com/OWNER/trl_ces/blob/main/"


def on_page_markdown(markdown: str, **_) -> str:
    """mkdocs calls this for each page."""
    return markdown.replace("](../experiments/", f"]({REPOSITORY}experiments/")
