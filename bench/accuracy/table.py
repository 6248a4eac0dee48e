"""What solve.py, distance.py and matmul.py share: one table in Markdown, a row for each case, a column for each peer."""
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
        answers = []
        for _, call in columns:
            try:
                with np.errstate(all="ignore"):
                    answers.append(call(problem))
            except (ValueError, OverflowError, np.linalg.LinAlgError) as error:
                answers.append(type(error).__name__)
        cells = [said(answer) or f"{worst(problem, np.asarray(answer)):.0e}" for answer in answers]
        print(f"| {name} | " + " | ".join(cell.replace("0e+00", "0").replace("inf", "not finite") for cell in cells) + " |",
              flush=True)


def said(answer):
    if answer is None:
        return "-"
    if isinstance(answer, str):
        return answer
    return None if np.isfinite(answer).all() else "not finite"
