"""The page at `/`, in a real Chromium: what it says while things come and go."""
import json

from page_standins import Told, document_of


def test_it_says_that_redis_is_away(make_service, browse):
    """A stream that is open is no sign of life of what its figures come from; once they come again, it says so by itself."""
    service = make_service("--limit", "silence_s=600")
    said = browse("redis_away", service, redis=service.part("redis"))
    assert not said["at_first"] and not said["at_last"]
    assert said["link"] == "not up to date" and "by themselves" in said["old"]
    assert said["axe"] == []


def test_what_runs_already_is_shown(service, browse):
    """Bars and states of jobs that had begun before anybody looked on: of more than a page of newer ones, too."""
    running = [document_of(number, "running", finished_at=None, progress=0.25) for number in (1, 200)]
    with Told(service, [document_of(number) for number in range(2, 150)] + running) as told:
        said = browse("runs_already", told, running=running)
    assert said["states"] == [None, "running 25 %"] and said["card"] == "1 running: matmul" and said["complaints"] == []


def test_what_is_selected_stays_selected(service, browse):
    """Whoever is about to copy an id does not lose it because something else is drawn."""
    job = document_of(5, "running", finished_at=None, progress=0.25)
    with Told(service, [document_of(1), job]) as told:
        said = browse("selects", told, job=job)
    assert said["row"] == ["matmul"] * 2 and said["card"] == ["cpu"] * 2
    assert said["document"] == [job["id"]] * 2 and said["complaints"] == []


def test_a_list_that_stands_still_says_so(service, browse):
    """It does under a hand, and where nothing is told; nobody is to take it for what there is now."""
    job = document_of(5)
    with Told(service, [job]) as told:
        said = browse("stands_still", told, job=job)
    assert said["at_first"] == "" and said["rows"] == 1
    assert "pointer" in said["pointed"] and "no news" in said["away"] and said["axe"] == []


def test_numbers_travel_as_they_were_typed(service, browse):
    """JavaScript's own would change integers beyond 2^53, 1e400 and the sign of 0 before the service could say anything of them."""
    fields = {"input-x": '{"dtype": "int64", "data": [[9007199254740993, -0.0], [1e400, 2]]}', "input-y": "[1.10,  2]",
              "param-alpha": "9007199254740993", "param-l1_ratio": ".5", "param-tol": "Infinity"}
    with Told(service) as told:
        said = browse("numbers", told, op="regression", fields=fields)
    (posted,) = said["posted"]
    assert json.loads(posted)["op"] == "regression" and said["complaints"] == []
    for text in (fields["input-x"], fields["input-y"], '"alpha":9007199254740993', '"l1_ratio":0.5', '"tol":"Infinity"'):
        assert text in posted, posted
    assert posted in said["curl"]



def test_a_link_to_one_job(service, browse):
    jobs = [document_of(number) for number in range(1, 200)]
    first, second = jobs[0]["id"], jobs[-1]["id"]  # one that is not in the list, and one that is
    with Told(service, jobs) as told:
        said = browse("linked", told, jobs=[first, second])
        assert said["link"] == f"{told.url}/#job={second}"
    assert said["closed"] == "" and said["opened"] == f"#job={second}" and "not there" in said["unknown"]


def test_older_jobs_have_no_gap(service, browse):
    """However many somebody looks back on, and more than the page would keep by itself; also where more were missed than a page of the list has."""
    old, new = [document_of(number) for number in range(1, 1501)], [document_of(number) for number in range(2001, 2025)]
    missed = [document_of(number) for number in range(3001, 3151)]
    with Told(service, old) as told:
        said = browse("pages_back", told, new=new, missed=missed)
    newest = [job["id"] for job in [*old, *new, *missed]][::-1]
    assert said["rows"] == newest[150:150 + 1250] and said["kept"] <= 1500
    assert said["again"] == newest[:1250]
