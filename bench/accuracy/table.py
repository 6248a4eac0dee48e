"""What solve.py, distance.py, matmul.py, decompositions.py and drawn.py share: one table in Markdown, a row for each case, a column for each peer."""
import sys
import warnings

import blasd
import numpy as np


def show(peers, cases, worst):
    """peers(client): name and a function of a case's problem, None where it has no such thing. cases(): name and
    problem. worst(problem, answers): for each answer its error."""
    client = blasd.Client(sys.argv[1])
    warnings.simplefilter("ignore")
    columns = list(peers(client))
    print("| case | " + " | ".join(name for name, _ in columns) + " |")
    print("|---" * (len(columns) + 1) + "|")
    for name, problem in cases():
        answers = [answer_of(call, problem) for _, call in columns]
        cells = [said(answer) or cell(worst(problem, np.asarray(answer))) for answer in answers]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def answer_of(call, problem):
    """What it gives, or the name of the error that it fails with."""
    try:
        with np.errstate(all="ignore"):
            return call(problem)
    except (ValueError, OverflowError, np.linalg.LinAlgError) as error:
        return type(error).__name__


def cell(error):
    return "0" if error == 0 else "not finite" if np.isinf(error) else f"{error:.0e}"


def said(answer):
    if answer is None:
        return "-"
    if isinstance(answer, str):
        return answer
    return None if np.isfinite(answer).all() else "not finite"
