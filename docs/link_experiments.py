"""mkdocs hook that replaces links to experiments/, which is not part of the site, with links to the repository."""

import tomllib
from pathlib import Path

PROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def on_page_markdown(markdown: str, **_) -> str:
    """Rewrite the links of a page. mkdocs calls this function for each page."""
    return markdown.replace("](../experiments/", f"]({PROJECT['urls']['Repository']}/blob/main/experiments/")
