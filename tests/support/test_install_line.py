"""Check that install commands in messages name the location that the package was installed from."""

import json

import pytest

from trl_ces.support import imports
from trl_ces.support.imports import install_line


class InstalledDistribution:
    def __init__(self, record):
        self.record = record

    def read_text(self, _name):
        return self.record and json.dumps(self.record)


@pytest.mark.parametrize(
    ("record", "line"),
    [
        (None, 'pip install "trl_ces[vllm]"'),  # installed from a package index
        ({"url": "file:///src/trl_ces", "dir_info": {"editable": True}}, 'pip install -e "/src/trl_ces[vllm]"'),
        ({"url": "file:///src/trl_ces", "dir_info": {}}, 'pip install "trl_ces[vllm] @ file:///src/trl_ces"'),
        (
            {"url": "https://host/a/trl_ces", "vcs_info": {"vcs": "git", "commit_id": "0"}},
            'pip install "trl_ces[vllm] @ git+https://host/a/trl_ces"',
        ),
    ],
)
def test_the_install_command_names_the_original_location(record, line, monkeypatch):
    monkeypatch.setattr(imports, "distribution", lambda _: InstalledDistribution(record))
    assert install_line("vllm") == line
