"""Short forms of `make chaos` and `make soak`, and of the checker that it can fail."""
import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "chaos"))

import chaos  # noqa: E402
import check  # noqa: E402
import soak  # noqa: E402

pytestmark = pytest.mark.full


def run(tmp_path, *words):
    assert chaos.main(["--calm", "1", "--pause", "0.15", "--rate", "120", "--workers", "2", "--keep", str(tmp_path / "run"),
                       *words]) == 0


@pytest.mark.parametrize("seed", [1, 2])
def test_a_little_of_everything(tmp_path, seed):
    run(tmp_path, "--kills", "25", "--seed", str(seed), "--seconds", "20")


@pytest.mark.parametrize("victim", ["worker", "api", "redis"])
def test_killing_one_part_again_and_again(tmp_path, victim):
    run(tmp_path, "--kills", "6", "--seed", "3", "--faults", f"kill-{victim}", "--lossy", "0", "--workers", "1")


def test_graphs_in_flight_while_parts_are_killed(tmp_path):
    run(tmp_path, "--kills", "12", "--seed", "6", "--faults", "kill-worker,kill-api,kill-redis,kill-all", "--lossy", "0", "--graphs",
        "--chains", "0")


def test_jobs_that_wait_for_others_while_parts_are_killed(tmp_path):
    run(tmp_path, "--kills", "12", "--seed", "7", "--faults", "kill-worker,kill-api,kill-redis,kill-all", "--lossy", "0", "--chains", "0.8")


def test_a_disk_that_fills_up(tmp_path):
    run(tmp_path, "--kills", "6", "--seed", "4", "--faults", "full-disk,kill-redis", "--lossy", "0", "--disk", "96")


def test_a_little_soaking(tmp_path):
    assert soak.main(["--seconds", "10", "--rate", "100", "--seed", "5", "--keep", str(tmp_path / "run")]) == 0


# --- what the checker must not let pass ---


def story(*events):
    """The problems of a history; times are those of the events' order, `since` right before."""
    checker = check.Checker()
    for at, event in enumerate(events):
        checker.take({"t": at, "since": at - 0.5, "begin": at - 0.5, "value": None, "code": None, "lossy": False, **event})
    return checker.end()


ACK = {"e": "ack", "key": "k", "id": "1", "op": "solve", "deadline": False}
RIGHT = {"e": "seen", "id": "1", "state": "succeeded", "value": "right"}
RUNNING = {"e": "seen", "id": "1", "state": "running"}
FLUSH = {"e": "fault", "kind": "flush", "lossy": True}
FLUSHED = {"e": "repaired", "kind": "flush", "lossy": True}
KILLED = {"e": "fault", "kind": "kill-all", "lossy": False}
LOST = {"e": "lost", "id": "1", "status": 404}
SENT = {"e": "submit", "key": "k", "op": "solve"}
SWEPT = {"e": "refused", "key": "k", "status": 410, "code": "record_expired"}


def test_a_good_history_has_no_problems():
    assert story(ACK, RUNNING, RIGHT, RIGHT) == []
    assert story(ACK, RUNNING, {**ACK}, RIGHT, {"e": "totals", "op": "solve", "submitted": 1, "ended": 1}) == []
    assert story({**ACK, "code": "singular_matrix"}, {"e": "seen", "id": "1", "state": "failed", "code": "singular_matrix"}) == []
    assert story(ACK, {"e": "cancelling", "id": "1"}, {"e": "seen", "id": "1", "state": "cancelled"}) == []
    assert story({**ACK, "deadline": True}, {"e": "seen", "id": "1", "state": "expired"}) == []
    assert story(ACK, FLUSH, LOST, FLUSHED) == []
    assert story(ACK, FLUSH, FLUSHED, LOST, {**ACK, "id": "2"}, {**RIGHT, "id": "2"}) == []
    assert story(ACK, FLUSH, {**RIGHT, "value": "wrong: its output is 404 job_not_found"}, FLUSHED) == []
    assert story(ACK, RIGHT, FLUSH, FLUSHED, RUNNING, {"e": "seen", "id": "1", "state": "failed", "code": "inputs_lost"}) == []
    assert story(ACK, RIGHT, FLUSH, FLUSHED, {**RIGHT, "value": "wrong: its output is 410 record_expired"}) == []
    assert story(SENT, {"e": "unanswered", "key": "k", "waited": False}, FLUSH, FLUSHED, SWEPT) == []
    assert story(ACK, RIGHT, {"e": "forgetting", "id": "1"}, LOST) == []
    assert story({"e": "unanswered", "key": "k", "waited": True}, ACK, {"e": "seen", "id": "1", "state": "cancelled"}) == []


@pytest.mark.parametrize("history, problem", [
    ([ACK, RUNNING], "never ended"),
    ([ACK, KILLED, LOST], "unknown"),
    ([FLUSH, FLUSHED, ACK, LOST], "unknown"),
    ([FLUSH, FLUSHED, ACK], "never ended"),
    ([ACK, RIGHT, RUNNING], "was succeeded before"),
    ([ACK, RIGHT, {"e": "seen", "id": "1", "state": "failed", "code": "poisoned"}], "was succeeded before"),
    ([FLUSH, FLUSHED, ACK, RIGHT, RUNNING], "was succeeded before"),
    ([ACK, RIGHT, FLUSH, FLUSHED, {"e": "seen", "id": "1", "state": "failed", "code": "poisoned"}], "without a reason"),
    ([ACK, {**RIGHT, "value": "wrong: [1.0]"}], "wrong"),
    ([ACK, FLUSH, {**RIGHT, "value": "wrong: [1.0]"}, FLUSHED], "wrong"),
    ([FLUSH, FLUSHED, ACK, {**RIGHT, "value": "wrong: its output is 410 record_expired"}], "wrong"),
    ([ACK, KILLED, {**RIGHT, "value": "wrong: its output is 404 job_not_found"}], "wrong"),
    ([{**ACK, "code": "singular_matrix"}, RIGHT], "should have failed"),
    ([ACK, {"e": "seen", "id": "1", "state": "failed", "code": "inputs_lost"}], "without a reason"),
    ([ACK, {"e": "seen", "id": "1", "state": "cancelled"}], "nobody cancelled"),
    ([ACK, {"e": "seen", "id": "1", "state": "expired"}], "no deadline"),
    ([ACK, RIGHT, {**ACK, "id": "2"}, {**RIGHT, "id": "2"}], "one key, two jobs"),
    ([ACK, RIGHT, {**ACK, "key": "other"}], "one job, two keys"),
    ([ACK, RIGHT, {"e": "foreign", "id": "1", "status": 200}], "another tenant"),
    ([ACK, RIGHT, {"e": "refused", "key": "k+", "status": 422, "code": "reference_not_found", "after": "1"}], "good job was refused"),
    ([FLUSH, FLUSHED, SENT, SWEPT], "good job was refused"),
    ([ACK, {"e": "seen", "id": "1", "state": "failed", "code": "input_failed"}], "without a reason"),
    ([ACK, RIGHT, {"e": "crash", "status": 500, "path": "/jobs", "body": ""}], "no answer that a client deserves"),
    ([ACK, RIGHT, {"e": "refused", "key": "k", "status": 422, "code": "idempotency_conflict"}], "good job was refused"),
    ([ACK, RIGHT, {"e": "totals", "op": "solve", "submitted": 2, "ended": 2}], "as are known"),
    ([ACK, RIGHT, {"e": "totals", "op": "solve", "submitted": 1, "ended": 2}], "as many jobs ended"),
    ([ACK, RIGHT, {"e": "left", "what": "keys", "names": ["x"]}], "left behind"),
])
def test_a_bad_one_has(history, problem):
    assert any(problem in line for line in story(*history)), story(*history)
