"""What the notebooks share: timing a call, and the account of where a job's time went."""
import os
import statistics
import time

# All sizes of the course with BLASD_TUTORIAL=full, some minutes for each notebook; else small ones, some seconds.
FULL = os.environ.get("BLASD_TUTORIAL") == "full"

# The parts of a job in order. Numbers move in those of BUS; in the others the way between network and memory is empty.
PARTS = {"receive": "#8da0cb", "queue": "#d9d9d9", "batch_wait": "#969696", "upload": "#fc8d62", "compute": "#66c2a5",
         "download": "#e78ac3"}
BUS = ("receive", "upload", "download")


def median_s(call, times=5):
    """The median of some calls in seconds; one before them is not counted."""
    call()
    taken = []
    for _ in range(times):
        start = time.perf_counter()
        call()
        taken.append(time.perf_counter() - start)
    return statistics.median(taken)


def timed(call):
    """What a call gives, and how many milliseconds it took."""
    start = time.perf_counter()
    value = call()
    return value, 1000 * (time.perf_counter() - start)


def account(wall_ms, timing):
    """The parts of a job in milliseconds; `answer` is what the client saw beyond them: its own work and the way back."""
    parts = {name: timing[f"{name}_ms"] for name in PARTS}
    parts["answer"] = max(0.0, wall_ms - sum(parts.values()))
    return parts


def empty_share(parts):
    """The share of a job's time in which the bus was empty."""
    return 1 - sum(parts[name] for name in (*BUS, "answer")) / sum(parts.values())


def draw_account(axes, accounts):
    """Horizontal bars, one for each job by its name, of where the time went."""
    colours = {**PARTS, "answer": "#ffd92f"}
    names = list(accounts)
    for row, name in enumerate(names):
        parts, left = accounts[name], 0.0
        total = sum(parts.values())
        for part, colour in colours.items():
            share = 100 * parts[part] / total
            axes.barh(row, share, left=left, color=colour, label=part if row == 0 else None)
            left += share
        axes.text(101, row, f"{total:.3g} ms", va="center", fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlim(0, 100)
    axes.set_xlabel("per cent of the job's time")
    axes.legend(ncols=len(colours), fontsize=7, loc="lower center", bbox_to_anchor=(0.5, 1.0), frameon=False,
                handlelength=1, columnspacing=1)


def print_account(accounts):
    """The same as a table."""
    print(f"{'':<26}{'total ms':>10}{'on the bus':>12}{'computing':>11}{'bus empty':>11}")
    for name, parts in accounts.items():
        total = sum(parts.values())
        moved = sum(parts[part] for part in (*BUS, "answer"))
        print(f"{name:<26}{total:>10.2f}{moved:>10.2f}ms{100 * parts['compute'] / total:>10.0f}%{100 * empty_share(parts):>10.0f}%")
