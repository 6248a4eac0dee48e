"""Results: the outputs of a job, and how they are shown."""
from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from . import safetensors
from .arrays import Array, warn
from .tensors import Tensor

# what a job does with its time, in order; the rest of the total is the service's own
PHASES = (("receive", "#8da0cb"), ("queue", "#d9d9d9"), ("batch_wait", "#bdbdbd"), ("upload", "#fc8d62"),
          ("compute", "#66c2a5"), ("download", "#e78ac3"))


class Result(dict[str, Array]):
    """The outputs of a job by name, each a NumPy array, and the account of how they came about.

    job: the whole job document. timing: milliseconds by part. execution: device, method, batch_size, …
    tensors: the outputs that the service keeps, by name, each a Tensor.
    warnings: what to know of the result, as texts; each is shown as a JobWarning too. warning_codes: a code for each.
    params: the parameters that were given; None of a job that was asked for elsewhere.
    """

    def __init__(self, arrays: Mapping[str, Array], job: dict[str, Any], params: Mapping[str, Any] | None = None) -> None:
        super().__init__(arrays)
        self.job = job
        self.params = None if params is None else dict(params)
        self.timing: dict[str, float] = job["timing"]
        self.execution: dict[str, Any] = job["execution"]
        self.tensors = {name: Tensor(output["tensor"]) for name, output in job.get("outputs", {}).items() if "tensor" in output}
        self.warnings: list[str] = job["execution"].get("warnings", [])
        self.warning_codes: list[str] = job["execution"].get("warning_codes", [])
        for text in self.warnings:
            warn(text)

    @staticmethod
    def of(arrays: Mapping[str, Array], job: dict[str, Any], params: Mapping[str, Any] | None = None) -> Result:
        """A Result, of the kind that the operation has; the outputs in its order, which that of their bytes need not be."""
        told = [name for name in job.get("outputs", {}) if name in arrays]
        arrays = {name: arrays[name] for name in dict.fromkeys([*told, *arrays])}
        return (RegressionResult if job.get("op") == "regression" else Result)(arrays, job, params)

    def __repr__(self) -> str:
        outputs = ", ".join(f"{name}: {array.dtype}{list(array.shape)}" for name, array in self.items())
        device = self.execution.get("device", {})
        where = device.get("id", "") if isinstance(device, dict) else device
        return f"<blasd.{type(self).__name__} {self.job.get('op')} {{{outputs}}} {where} {_ms(self.timing.get('total_ms'))}>"

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><th>{html.escape(name)}</th><td>{array.dtype}</td><td>{list(array.shape)}</td></tr>"
                       for name, array in self.items())
        return f"<div>{job_html(self.job)}<table>{rows}</table></div>"


class RegressionResult(Result):
    """The outputs of a regression; printed, a table as statsmodels gives it, with the names of a frame's columns."""

    names: list[str] | None = None  # of the features, where x was a frame
    groups: list[Any] | None = None  # with by: the labels, one for each fit

    def __str__(self) -> str:
        whole = {"coef", "intercept"} <= self.keys() and ("stderr" not in self or _STATISTICS <= self.keys())
        return self.summary() if whole and self["coef"].ndim == 1 else repr(self)

    def summary(self, names: list[str] | None = None) -> str:
        """The fit as text. names: those of the features; else those of a frame's columns, or x1, x2, … ValueError for a stack of
        fits."""
        if self["coef"].ndim != 1:
            raise ValueError("there is a summary of one fit, not of a stack of them")
        count = len(self["coef"])
        names = self.names if names is None else names
        names = [f"x{i + 1}" for i in range(count)] if names is None else list(names)
        if len(names) != count:
            raise ValueError(f"{len(names)} names for {count} features")
        method = [] if self.params is None else [str(self.params.get("method", "ols"))]
        lines = []
        for name, label, form in _FACTS:
            if name in self:
                lines.append((label, format(self[name].item(), form)))
        width = 78
        out = ["Linear regression".center(width).rstrip(), "=" * width,
               f"{'method:':<20}{', '.join([*method, *filter(None, [self.execution.get('method')])])}"]
        half = (len(lines) + 1) // 2
        for i in range(half):
            left, right = lines[i], lines[i + half] if i + half < len(lines) else ("", "")
            out.append(f"{left[0] + ':':<20}{left[1]:>18}  {right[0] + (':' if right[0] else ''):<20}{right[1]:>18}".rstrip())
        out.append("=" * width)
        out += self._rows(names)
        out.append("=" * width)
        out += [f"Note: {text}" for text in self.warnings]
        return "\n".join(out)

    def _rows(self, names: list[str]) -> list[str]:
        coef = self["coef"]
        if "stderr" not in self:
            rows = [("const", float(self["intercept"]))] if float(self["intercept"]) != 0 else []
            rows += [(name, float(value)) for name, value in zip(names, coef)]
            return [f"{'':<16}{'coef':>12}", "-" * 78] + [f"{name[:16]:<16}{value:>12.6g}" for name, value in rows]
        if len(self["stderr"]) == len(coef) + 1:
            names, coef = ["const", *names], np.concatenate([np.reshape(self["intercept"], 1), coef])
        low, high = "low", "high"
        if self.params is not None:
            outside = (1 - float(self.params.get("level", 0.95))) / 2
            low, high = f"{outside:.3g}", f"{1 - outside:.3g}"
        rows_out = [f"{'':<16}{'coef':>12}{'std err':>11}{'t':>10}{'P>|t|':>9}{f'[{low}':>10}{f'{high}]':>10}", "-" * 78]
        for i, name in enumerate(names):
            a, b = self["conf_int"][i]
            rows_out.append(f"{name[:16]:<16}{coef[i]:>12.6g}{self['stderr'][i]:>11.4g}{self['tvalues'][i]:>10.3f}"
                            f"{self['pvalues'][i]:>9.3f}{a:>10.4g}{b:>10.4g}")
        return rows_out


_STATISTICS = {"stderr", "tvalues", "pvalues", "conf_int"}
_FACTS = (("r2", "R-squared", ".6g"), ("r2_adj", "adj. R-squared", ".6g"), ("fvalue", "F-statistic", ".6g"),
          ("f_pvalue", "prob (F-statistic)", ".4g"), ("loglik", "log-likelihood", ".6g"), ("aic", "AIC", ".6g"),
          ("bic", "BIC", ".6g"), ("df_resid", "df residuals", "d"), ("df_model", "df model", "d"),
          ("rank", "rank", "d"), ("cond", "cond. no.", ".4g"), ("ssr", "sum sq. residuals", ".6g"),
          ("n_iter", "iterations", "d"), ("dual_gap", "dual gap", ".4g"))


def result_of(body: memoryview, params: Mapping[str, Any] | None = None) -> Result:
    """The Result that a binary answer holds; its arrays are views of the body."""
    arrays, metadata = safetensors.unpack(body)
    return Result.of(arrays, json.loads(metadata["job"]), params)


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.3g} ms" if value < 1000 else f"{value / 1000:.3g} s"


def left(document: dict[str, Any]) -> str:
    """How long a job that runs will yet take, as far as that is known."""
    ms = document.get("remaining_ms")
    if ms is None:
        return ""
    seconds = max(1, math.ceil(ms / 1000))
    return f"{seconds} s left" if seconds < 100 else f"{round(seconds / 60)} min left" if seconds < 6000 else f"{round(seconds / 3600)} h left"


def standing(document: dict[str, Any]) -> list[str]:
    """The state of a job and, while it runs, how far it is."""
    if document.get("state") != "running":
        return [str(document.get("state"))]
    return [text for text in ("running", f"{100 * (document.get('progress') or 0):.0f}%", left(document)) if text]


def job_html(document: dict[str, Any]) -> str:
    """State, device and a bar of where the time went."""
    timing = document.get("timing") or {}
    parts = [(name, colour, timing.get(f"{name}_ms") or 0.0) for name, colour in PHASES]
    total = sum(value for _, _, value in parts) or 1.0
    bar = "".join(f'<span title="{name} {_ms(value)}" style="display:inline-block;height:10px;background:{colour};'
                  f'width:{100 * value / total:.2f}%"></span>' for name, colour, value in parts if value > 0)
    legend = ", ".join(f"{name} {_ms(value)}" for name, _, value in parts if value > 0)
    device = (document.get("execution") or {}).get("device", "")
    device = device.get("id", "") if isinstance(device, dict) else device
    head = " · ".join(html.escape(str(text)) for text in (document.get("op"), document.get("id"), *standing(document),
                                                           device, _ms(timing.get("total_ms"))) if text)
    error = document.get("error")
    note = f"<div>{html.escape(str(error.get('detail', '')))} {html.escape(str(error.get('advice', '')))}</div>" if error else ""
    return f'<div><b>{head}</b></div>{note}<div style="width:100%;max-width:40em">{bar}</div><small>{legend}</small>'
