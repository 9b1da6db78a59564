"""Fixtures of the browser tests."""

from browsers import browser, page  # noqa: F401
