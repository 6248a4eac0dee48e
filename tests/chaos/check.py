#!/usr/bin/env python3
"""What must hold of a history, whatever was killed, stopped, filled or moved meanwhile.

    check.py HISTORY.jsonl      reads a history that was kept, prints what does not hold; exit 1 where anything does not

A history is a list of events, each with `e`, its kind, and `t`, when it was heard; `since` is when what was heard was asked.

  submit     key, op                        a client begins a job
  unanswered key, waited                    a POST without an answer; one that waited may have cancelled its job by going
  refused    key, status, code[, after]     a POST that was refused; after: the job that it refers to
  ack        key, id, op, code, deadline    a POST that was acknowledged; how the job must end
  seen       id, state, value, code         a document of the job; value: "right" or what is wrong with it
  lost       id, status, code               "there is no such job"
  cancelling id · forgetting id             a DELETE is about to be sent
  foreign    id, status                     what another tenant was told of it
  crash      status, path, body             an answer of 500 and above that is not "come again"
  fault      kind, lossy                    what is done to the service; lossy: what Redis held goes with it
  repaired     kind, lossy, kills             it was done
  totals     op, submitted, ended           what Redis counted, at the end
  left       what, names                    what was there at the end and not at the beginning

Each acknowledged job ends once: it is seen in one final state, in no other after it, but where Redis lost that end, and is never
unknown, but where it was forgotten or Redis was emptied after it was acknowledged. It ends right: with the value that it must have, or failed with the
code that it must fail with; cancelled only where a client wanted it, expired only where it had a deadline. A key names one job
and a job has one key. Redis took in as many jobs as have been acknowledged, and ended each of them.
"""
import collections
import json
import sys

FINAL = ("succeeded", "failed", "cancelled", "expired")
# Of an output whose document was there: Redis may be emptied in between, or have been; where its file then loses that it was, records
# come back whose outputs have been swept.
GONE = ("404 job_not_found", "410 record_expired")


class Acked:
    __slots__ = ("key", "op", "code", "deadline", "at", "final", "final_at", "right", "cancelling", "forgetting", "lost")

    def __init__(self, event):
        self.key, self.op, self.code, self.deadline = event["key"], event["op"], event["code"], event["deadline"]
        self.at = event["since"]  # from then on Redis may have had it, and lost it again before the answer was heard
        self.final = self.final_at = self.lost = None
        self.right = self.cancelling = self.forgetting = False


class Checker:
    """Takes one event after the other, in the order in which they were heard."""

    def __init__(self):
        self.jobs, self.keys, self.left = {}, {}, set()
        self.begun = {}  # key -> when its first request was about to be sent
        self.lossy_now, self.lossy_until = False, -1.0  # a fault that loses what Redis holds; when the last one was over
        self.problems, self.counts = [], collections.Counter()
        self.submitted = collections.Counter()

    def complain(self, what, event):
        if len(self.problems) < 200:
            self.problems.append(f"{what}: {json.dumps(event)}")
        self.counts["problems"] += 1

    def emptied_since(self, at):
        """Whether Redis lost what it held after that moment, or may be losing it."""
        return self.lossy_now or self.lossy_until >= at

    def take(self, event):
        kind = event["e"]
        getattr(self, "take_" + kind)(event)
        self.counts[kind] += 1

    def take_submit(self, event):
        self.begun[event["key"]] = event["t"]

    def take_refused(self, event):
        self.counts[f"refused {event['code']}"] += 1
        # while it waited for the end, or before that, after an earlier request with that key
        gone = event["status"] in (404, 410) and self.emptied_since(self.begun.get(event["key"], event["since"]))
        if event["status"] not in (408, 429, 503) and not gone and not self.has_no_input(event):
            self.complain("a good job was refused", event)

    def has_no_input(self, event):
        """It refers to a job that has not ended, must fail, or was lost by Redis."""
        first = self.jobs.get(event.get("after"))
        return first is not None and (event["code"] == "job_not_ended" or
                                      event["code"] == "input_failed" and first.code is not None or
                                      event["status"] == 422 and self.emptied_since(first.at))

    def take_unanswered(self, event):
        if event["waited"]:
            self.left.add(event["key"])

    def take_crash(self, event):
        self.complain("no answer that a client deserves", event)

    def take_fault(self, event):
        self.lossy_now = event["lossy"]
        self.counts[f"fault {event['kind']}"] += 1

    def take_repaired(self, event):
        if self.lossy_now:
            self.lossy_now, self.lossy_until = False, event["t"]

    def take_ack(self, event):
        key, known = event["key"], self.keys.get(event["key"])
        if known is not None and known != event["id"] and not self.emptied_since(self.jobs[known].at):
            self.complain(f"one key, two jobs, the other {known}", event)
        job = self.jobs.get(event["id"])
        if job is None:
            job = self.jobs[event["id"]] = Acked(event)
            self.submitted[event["op"]] += 1
        elif job.key != key:
            self.complain(f"one job, two keys, the other {job.key}", event)
        self.keys[key] = event["id"]

    def take_seen(self, event):
        job, state = self.jobs[event["id"]], event["state"]
        if job.final is not None and state != job.final and self.emptied_since(job.final_at):
            job.final = None  # Redis may know of the job and not of its end, which was lost: it ends anew
        if job.final is not None and state != job.final and event["since"] > job.final_at:
            self.complain(f"it was {job.final} before", event)
        elif job.final is not None and state in FINAL and state != job.final:
            self.complain(f"ended twice, also as {job.final}", event)
        if state not in FINAL:
            return
        if job.final is None:
            job.final, job.final_at = state, event["t"]
            self.counts[state] += 1
        self.check_end(job, state, event)

    def check_end(self, job, state, event):
        if state == "succeeded":
            if job.code is not None:
                self.complain(f"it should have failed with {job.code}", event)
            elif event["value"] != "right" and not (event["value"].endswith(GONE) and self.emptied_since(job.at)):
                self.complain("wrong", event)
            job.right = True
        elif state == "failed" and event["code"] != job.code:
            if not (event["code"] in ("inputs_lost", "input_failed") and self.emptied_since(job.at)):
                self.complain("failed without a reason of its own", event)
        elif state == "cancelled" and not job.cancelling and job.key not in self.left:
            self.complain("nobody cancelled it", event)
        elif state == "expired" and not job.deadline:
            self.complain("it had no deadline", event)

    def take_lost(self, event):
        job = self.jobs[event["id"]]
        job.lost = event["code"]
        if job.forgetting:
            return
        if self.emptied_since(job.at):
            self.counts["lost with all that Redis held"] += 1
        else:
            self.complain("an acknowledged job is unknown", event)

    def take_cancelling(self, event):
        self.jobs[event["id"]].cancelling = True

    def take_forgetting(self, event):
        self.jobs[event["id"]].forgetting = True

    def take_foreign(self, event):
        if event["status"] != 404:
            self.complain("another tenant sees it", event)

    def take_totals(self, event):
        if self.lossy_until >= 0:
            return
        if event["submitted"] != event["ended"]:
            self.complain("not as many jobs ended as were taken in", event)
        if event["submitted"] != self.submitted[event["op"]]:
            self.complain(f"not as many jobs were taken in as are known, {self.submitted[event['op']]}", event)

    def take_left(self, event):
        if event["names"]:
            self.complain("left behind", event)

    def end(self):
        """All that is known now. -> the problems"""
        for name, job in self.jobs.items():
            if job.final is None and job.lost is None and not self.emptied_since(job.at):
                self.complain("it never ended", {"id": name, "key": job.key, "op": job.op})
        return self.problems


def main():
    checker = Checker()
    with open(sys.argv[1], encoding="utf-8") as file:
        for line in file:
            checker.take(json.loads(line))
    problems = checker.end()
    print("\n".join(problems), end="\n" if problems else "")
    print(json.dumps({"acknowledged": len(checker.jobs), **checker.counts}))
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
