"""Draws results.json: the goals, how many times as fast as each peer, and the latencies of the small jobs.

    plot.py results.json results.png        needs matplotlib
"""
import json
import statistics
import sys

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt  # noqa: E402
from measure import ratios  # noqa: E402

COLOURS = {"fastapi": "#4c72b0", "fastapi-2": "#8da6d3", "fastapi-stdlib": "#c6d3ea", "celery": "#55a868", "triton": "#c44e52",
           "plain-c": "#8172b2", "direct": "#937860"}


def draw_ratios(axes, loads):
    labels, at = [], 0
    for name, report in loads.items():
        found = ratios(report["trials"])
        if not found or name == "receive":
            continue
        for peer, ratio in found.items():
            axes.barh(at, ratio["median"], color=COLOURS.get(peer, "#888888"), height=0.8,
                      xerr=[[ratio["median"] - ratio["least"]], [ratio["most"] - ratio["median"]]],
                      error_kw={"lw": 0.8, "capsize": 2})
            axes.text(ratio["most"] * 1.05, at, f"{ratio['median']:.3g}", va="center", fontsize=7)
            labels.append((at, f"{name} : {peer}"))
            at += 1
        at += 0.6
    axes.set_yticks([y for y, _ in labels], [text for _, text in labels], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    if labels:
        axes.set_xlim(right=axes.get_xlim()[1] * 2)  # room for the figures
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xlabel("blasd's rate over the peer's, median of the turns and their range")
    axes.grid(axis="x", alpha=0.3)


def draw_latencies(axes, loads):
    at, ticks = 0, []
    for name in ("json-1", "json-32", "json-256", "binary-64", "mixed"):
        if name not in loads:
            continue
        for subject in dict.fromkeys(t["subject"] for t in loads[name]["trials"]):
            mine = [t["result"]["latency_ms"] for t in loads[name]["trials"] if t["subject"] == subject]
            low, middle, high = (statistics.median(m[q] for m in mine) for q in ("p50", "p90", "p99"))
            colour = "black" if subject == "blasd" else COLOURS.get(subject, "#888888")
            axes.plot([low, high], [at, at], color=colour, lw=2)
            axes.plot([low, middle, high], [at] * 3, "o", color=colour, ms=3)
            ticks.append((at, f"{name} : {subject}"))
            at += 1
        at += 0.6
    axes.set_yticks([y for y, _ in ticks], [text for _, text in ticks], fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("latency in ms: p50, p90, p99")
    axes.grid(axis="x", alpha=0.3)


def draw_goals(axes, goals):
    """How many times over each goal is reached. One that is zero has no such figure, only the answer."""
    labels = []
    for goal in goals:
        if goal["met"] is None:
            continue
        at, value, colour = len(labels), goal["value"], "#55a868" if goal["met"] else "#c44e52"
        if value and goal["goal"]:
            times = value / goal["goal"] if goal["comparison"] == ">=" else goal["goal"] / value
            axes.plot([1, times], [at, at], color=colour, lw=3, solid_capstyle="butt")
            axes.plot([times], [at], "o", color=colour, ms=4)
        else:
            axes.plot([1], [at], "o" if goal["met"] else "X", color=colour, ms=6)
        labels.append(f"{goal['load']} : {goal['what']}\n{goal['comparison']} {goal['goal']:,g} : {value:,.4g}")
    axes.set_yticks(range(len(labels)), labels, fontsize=7)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.axvline(1, color="black", lw=0.8)
    axes.set_xlabel("times the goal: right of the line it is met")
    axes.grid(axis="x", alpha=0.3)


def main():
    with open(sys.argv[1]) as file:
        results = json.load(file)
    figure, (first, left, right) = plt.subplots(1, 3, figsize=(20, 10))
    draw_goals(first, results["goals"])
    draw_ratios(left, results["loads"])
    draw_latencies(right, results["loads"])
    facts = results["host"]
    figure.suptitle(f"blasd {facts['commit']} on {facts['cpu']}, {facts['cores']} cores, load generator included; "
                    f"load average before {facts['load_average']:.1f}; "
                    f"{results['rounds']} turns of {results['seconds']:g} s", fontsize=10)
    figure.tight_layout()
    figure.savefig(sys.argv[2], dpi=110, bbox_inches="tight")


if __name__ == "__main__":
    main()
