"""Bars of progress, by tqdm where it is installed; else nothing is shown."""
from __future__ import annotations

from collections.abc import Iterable, Sized
from typing import Any

from .calls import Document, Progress, Watch, watching
from .results import left


def _tqdm(**options: Any) -> Any:
    """A bar; None where tqdm is not installed."""
    try:
        import tqdm
    except ImportError:
        return None
    return tqdm.tqdm(**options)


class JobBar:
    """A progress bar of one job, if asked for; as a context manager it gives its callback, or None."""

    def __init__(self, wanted: bool | Progress, label: str) -> None:
        self.bar: Any = _tqdm(total=1.0, desc=label, bar_format="{desc}: {percentage:3.0f}% |{bar}| {elapsed}{postfix}") \
            if wanted is True else None
        self.function = wanted if callable(wanted) else None

    def __enter__(self) -> Watch | None:
        return self._show if self.bar is not None else watching(self.function)

    def _show(self, document: Document) -> None:
        self.bar.n = document["progress"]
        self.bar.set_postfix_str(left(document), refresh=False)
        self.bar.refresh()

    def __exit__(self, kind: object, *_: object) -> None:
        if self.bar is not None:
            if kind is None:  # also where nobody had asked in between
                self._show({"progress": 1.0})
            self.bar.close()


class JobsBar:
    """A bar of many jobs, where one is wanted; `step` counts one."""

    def __init__(self, wanted: bool, label: str, jobs: Iterable[Any]) -> None:
        total = len(jobs) if isinstance(jobs, Sized) else None
        self.bar: Any = _tqdm(total=total, desc=label, unit="job") if wanted else None

    def step(self) -> None:
        if self.bar is not None:
            self.bar.update(1)

    def __enter__(self) -> JobsBar:
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
