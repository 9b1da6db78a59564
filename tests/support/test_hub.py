"""Names of models and data sets: a path, or an id of the Hub."""

import pytest

from trl_ces.support.hub import is_local


@pytest.mark.parametrize(
    ("name", "local"),
    [
        ("gpt2", False),
        ("owner/model", False),
        ("owner/model-1.5B", False),
        ("./model", True),
        ("~/model", True),
        ("/data/model", True),
        ("runs/a/b", True),
        ("data/train.jsonl", True),
        ("here/model", True),
    ],
)
def test_a_name_is_a_path_if_it_exists_or_cannot_be_an_id(tmp_path, monkeypatch, name, local):
    (tmp_path / "here" / "model").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    assert is_local(name) == local
