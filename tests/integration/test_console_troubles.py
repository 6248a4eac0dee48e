"""The page at `/`, in a real Chromium: hostile texts, what goes wrong, and answers that come late."""
import re

from page_standins import Late, Liar, Trouble

import pytest
from service import ROOT

pytestmark = pytest.mark.full

CONSOLE = ROOT / "src" / "http" / "console"


def test_no_text_becomes_markup(service, browse):
    """Whatever the texts are that the page is told, none becomes an element, runs, or has anything asked for. Its policy would stop
    the worst of it; it is not to come to that."""
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc|javascript:",
                         "".join(file.read_text() for file in CONSOLE.iterdir()))
    with Liar(service) as liar:
        said = browse("hostile", liar)
    assert said["hacked"] is None and said["made"] == [] and said["complaints"] == []
    for where in ("tip", "body", "card", "row"):
        assert "<img src=x" in said[where], (where, said[where])
    assert "<img/src=x" in said["totals"]
    assert not any(re.search(r"/x$|favicon", path) for path in liar.asked), liar.asked


def test_what_goes_wrong(service, browse):
    """What the page makes of a service that is away at first, a stream that breaks off and goes on elsewhere, jobs whose end nobody told,
    a job that is not there, a connection on which nothing comes any more, and a key that is revoked."""
    with Trouble(service) as trouble:
        said = browse("goes_wrong", trouble, quiet=trouble.QUIET, twice=trouble.TWICE, failed=trouble.FAILED)
    assert "ASCII" in said["no_key"] and "too many look on" in said["full"]
    assert [one.get("params") for one in said["posted"]] == [{"p": "Infinity"}]  # once, though two tries to sign in were under way
    assert said["time"] == "3 min 0 s" and said["totals"]["matmul"]["succeeded"] == 1 and "and 6 more" in said["devices"]
    assert said["kept"] == [trouble.FAILED]
    assert said["focus"] == "older" and said["stays_away"]
    assert "not there" in said["unknown"] and trouble.TWICE not in said["unknown"]
    assert said["dialog"] is False and said["rows"] == []


def test_answers_that_come_late(service, browse):
    """What an answer finds changed that it is not meant for any more: another key, filter, job; or that is newer than it."""
    with Late(service) as late:
        said = browse("answers_late", late)
    assert said["signed_in"] == [["good"], True]
    assert "cursor=of-all" in said["older"], said["older"]
    assert said["states"] == ["running", "running", "running"]
    assert said["forgotten"] == [True, 2] and said["complaint"] == 0
    assert said["sent"] == [True, 2] and said["signed_out"] is False
