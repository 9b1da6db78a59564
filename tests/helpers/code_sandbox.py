"""Detect whether this machine supports the sandbox for model-written code."""

import pytest

from trl_ces.lab.evaluation.code.sandbox import check_sandbox
from trl_ces.support.errors import UserError

try:
    check_sandbox()
except UserError as error:
    UNAVAILABLE = str(error)
else:
    UNAVAILABLE = ""
needs_sandbox = pytest.mark.skipif(bool(UNAVAILABLE), reason=UNAVAILABLE)
