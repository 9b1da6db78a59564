"""Check that TRL's Triton kernels, run by Triton's interpreter on the CPU, produce the same CES steps as torch."""

import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

# The script runs in a separate process, because Triton reads TRITON_INTERPRET when it is imported.
SCRIPT = Path(__file__).parent / "helpers" / "triton_steps.py"
TOLERANCE = {"float32": 1e-6, "bfloat16": 1e-2}
CASES = ["plain", "pieces", "packed", "off-policy", "masked"]

pytestmark = pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"),
    reason="the dev extra installs Triton only on Linux x86_64",
)


@pytest.fixture(scope="module")
def steps(tmp_path_factory):
    file = tmp_path_factory.mktemp("triton") / "steps.json"
    changes = {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    environment = {**os.environ, **changes}
    result = subprocess.run([sys.executable, SCRIPT, file], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(file.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("dtype", TOLERANCE)
@pytest.mark.parametrize("case", CASES)
def test_steps_with_triton_kernels_match_steps_with_torch(steps, case, dtype):
    step, tolerance = steps[f"{case}, {dtype}"], TOLERANCE[dtype]
    forward, backward = step["launches"]
    assert (backward > 1) == (case in ("pieces", "off-policy"))
    assert (forward > backward) == (case == "off-policy")  # the old log-probs need extra forward passes
    torch_losses, triton_losses = step["losses"]
    assert triton_losses == pytest.approx(torch_losses, rel=0, abs=tolerance)
    assert len(step["differences"]) == len(torch_losses) == (2 if case == "off-policy" else 1)
    assert min(step["norms"]) > 0.1
    assert max(step["differences"]) < tolerance  # relative norm of the difference between the gradients
    assert (step["clipped"] > 0.05) == (case == "off-policy")
