#!/usr/bin/env python3
"""A service under a steady load, all of whose results are checked, for long: memory and descriptors must be flat.

    tests/chaos/soak.py [--seconds 1800] [--rate 250] [--seed N] [--keep DIR]

After a tenth of the time everything that is filled once has been (pools, caches, freelists). From then on each part is looked at
every five seconds; what the middle look of the last fifth saw may not be more than the middle one of the first fifth by more than
a twentieth and 8 MiB (128 MiB where the run is too short to have filled all that is filled once), or by more than four descriptors. Exit status: 0 flat, and every job ended right.
"""
import argparse
import pathlib
import random
import shutil
import statistics
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "integration")]

import chaos  # noqa: E402
import load  # noqa: E402
from service import Service  # noqa: E402

LOOK_S = 5
MIB = 1 << 20


def grown(looks, allowance):
    """What is not flat: `looks` are {part: (descriptors, bytes)}."""
    fifth, problems = max(1, len(looks) // 5), []
    for part in looks[0]:
        before, after = ([statistics.median(look[part][i] for look in some) for i in (0, 1)]
                         for some in (looks[:fifth], looks[-fifth:]))
        print(f"{part}: {before[0]:.0f} descriptors, {before[1] / MIB:.1f} MiB; then {after[0]:.0f}, {after[1] / MIB:.1f} MiB")
        if after[0] > before[0] + 4:
            problems.append(f"{part}: descriptors {before[0]} to {after[0]}")
        if after[1] > before[1] * 1.05 + allowance:
            problems.append(f"{part}: bytes {before[1]} to {after[1]}")
    return problems


def main(words=None):
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--rate", type=float, default=250)
    parser.add_argument("--threads", type=int, default=12)
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--keep", type=pathlib.Path, default=None)
    arguments = parser.parse_args(words)
    seed = random.SystemRandom().randrange(1 << 32) if arguments.seed is None else arguments.seed
    folder = arguments.keep or pathlib.Path(tempfile.mkdtemp(prefix="blasd-soak-"))
    folder.mkdir(parents=True, exist_ok=True)
    print(f"seed {seed}, in {folder}", flush=True)
    shutil.rmtree(folder / "service", ignore_errors=True)
    history = chaos.History(folder / "history.jsonl")
    service = Service(folder / "service").start()
    looks, before = [], chaos.processes(service)
    try:
        sender = load.Load(service.port, random.Random(seed), [{}], history.note, arguments.threads, arguments.rate, kept=0)
        sender.start()
        end = time.monotonic() + arguments.seconds
        time.sleep(arguments.seconds / 10)
        while time.monotonic() < end:
            time.sleep(min(LOOK_S, arguments.seconds / 20))
            looks.append(chaos.usage(service))
        left = load.settle(sender.stop(), service.port, [{}], history.note, 120)
        assert not left, left
        assert chaos.processes(service) == before, "a part was replaced"
        problems = history.checker.end() + grown(looks, (8 if arguments.seconds >= 600 else 128) * MIB)
    finally:
        service.stop(check=False)
        history.file.close()
    print("\n".join(problems), end="\n" if problems else "")
    print(f"{len(history.checker.jobs)} jobs in {arguments.seconds:.0f} s, {len(looks)} looks, {len(problems)} problems")
    if not problems and arguments.keep is None:
        shutil.rmtree(folder)
    return len(problems)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
