"""The progress bar that commands share: what is done, how much is left, and how long."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn


class Bar:
    """A line of a progress bar that moves forward."""

    def __init__(self, progress: Progress, words: str, unit: str) -> None:
        self._progress, self._line = progress, progress.add_task(words, total=None, unit=unit)

    def advance(self, done: float, total: float | None = None) -> None:
        """So much more is done, of so much in all."""
        self._progress.update(self._line, advance=done, total=total)


@contextmanager
def progress_bar(words: str, unit: str, total: float | None = None) -> Generator[Bar]:
    """A bar on standard error that is gone when the work is done; none if nobody watches."""
    console = Console(stderr=True)
    with Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.completed:,.0f} {task.fields[unit]}"),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    ) as progress:
        bar = Bar(progress, words, unit)
        if total is not None:
            bar.advance(0, total)
        yield bar
