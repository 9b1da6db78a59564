"""Which failures of a server end a request at once."""

import pytest
import requests
from processes import free_port
from requests.adapters import HTTPAdapter
from urllib3.util.retry import Retry

from trl_ces.layers.upstream import limit_waiting


def limited(retries):
    session = requests.Session()
    session.mount("http://", HTTPAdapter(max_retries=retries))
    limit_waiting(session, seconds=60)
    return session


def test_a_server_that_refuses_the_connection_is_not_asked_again(monkeypatch):
    """Started anew, it would answer with other weights than were sent."""
    monkeypatch.setattr("urllib3.util.retry.time.sleep", lambda _: pytest.fail("asked again"))
    with pytest.raises(requests.exceptions.ConnectionError, match="Connection refused"):
        limited(Retry(total=5, connect=5, read=5, backoff_factor=2)).get(f"http://127.0.0.1:{free_port()}")


def test_all_other_retries_stay():
    given = Retry(total=5, connect=5, read=4, status=3, backoff_factor=2, status_forcelist=[503], allowed_methods=None)
    found = limited(given).get_adapter("http://").max_retries
    assert {**vars(found), "connect": 5} == vars(given)
