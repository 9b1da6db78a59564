"""Detect whether this machine can run the sandbox for model-written code."""

import pytest

from trl_ces.lab.evaluation.code.sandbox import check_sandbox
from trl_ces.support.errors import UserError

try:
    check_sandbox()
except UserError as refusal:
    CANNOT = str(refusal)
else:
    CANNOT = ""
built = pytest.mark.skipif(bool(CANNOT), reason=CANNOT)
