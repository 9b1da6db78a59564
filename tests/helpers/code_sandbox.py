"""Check whether this machine supports the sandbox for model-written code, without using the sandbox itself."""

import shutil
import subprocess
from ctypes.util import find_library

import pytest

NAMESPACES = ["bwrap", "--ro-bind", "/", "/", "--unshare-user", "--unshare-pid", "--unshare-net", "true"]
SUPPORTED = bool(
    shutil.which("bwrap")
    and find_library("seccomp")
    and subprocess.run(NAMESPACES, capture_output=True, timeout=60).returncode == 0
)
needs_sandbox = pytest.mark.skipif(not SUPPORTED, reason="bubblewrap, libseccomp or user namespaces are not available")
