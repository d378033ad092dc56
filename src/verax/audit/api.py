"""The audit in three lines: run what is missing, judge it, write the report.

```python
from verax.audit import audit
from verax.tasks import digits

print(audit(digits(), rounds=100, setting_seeds=1, choosing_seeds=1, judging_seeds=2))
```
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from verax.audit.judge import Judgement, judge, propose, terms_toml
from verax.audit.judge.spot import spot_comment
from verax.audit.plan import Plan
from verax.audit.run.execute import run
from verax.audit.run.simulated import TaskSubject
from verax.audit.run.subject import Subject
from verax.audit.search import searched
from verax.audit.show.notebook import notebook_html
from verax.audit.show.report import write_report
from verax.audit.show.summary import summarise
from verax.audit.show.verdict import searched_lines
from verax.files import write_text
from verax.learning import Task
from verax.mechanism import Terms
from verax.plugins import is_reference


@dataclass(frozen=True, eq=False)
class Audit:
    """A finished audit.

    Attributes:
        judgement: all numbers, as arrays.
        summary: the documented JSON object.
        folder: where record, report and terms are, or None if nothing was kept.
    """

    judgement: Judgement
    summary: dict[str, Any]
    folder: Path | None

    @property
    def window(self) -> tuple[float, float] | None:
        """Prices (for the profile: multiples) at which nothing tried gains, or None."""
        window = self.summary["window"]
        if window is None:
            return None
        return window["low"], float("inf") if window["high"] is None else window["high"]

    @property
    def terms(self) -> Terms:
        """What the audit proposes to charge by."""
        return propose(self.judgement)

    def draw(self, folder: str | Path) -> list[Path]:
        """Draw the figures as PNG and SVG into a folder, and return the files."""
        from verax.audit.show import figures  # matplotlib takes a second to load

        return figures.draw(self.summary, Path(folder))

    def __str__(self) -> str:
        return "\n".join(self.summary["verdict"])

    def _repr_html_(self) -> str:
        """What Jupyter shows of it."""
        return notebook_html(self.summary)


def audit(
    task: Task,
    plan: Plan | None = None,
    *,
    out: str | Path | None = None,
    memory: int | None = None,
    workers: int | None = None,
    processes: bool = False,
    on: str = "",
    progress: Callable[[int], None] | None = None,
    **options: Any,
) -> Audit:
    """Does anybody gain by misreporting on this task, and which price stops it?

    Args:
        task: data, model and loss.
        plan: what to try; default: `Plan()` for the task's number of clients.
        out: folder for record, report and terms; an audit of the same plan that was begun
            there is continued. Default: nothing is kept.
        memory: bytes that may be used (default: half of what is free).
        workers: how many batches are computed at a time (default: as many as cores).
        processes: workers are processes; for tasks that the plan itself describes.
        on: "ray", or "ray://host:port" of a cluster, instead of this machine's cores.
        progress: called with the number of run-rounds just done.
        options: settings of the plan by their names on the command line, such as `rounds=100`.
            Rules, aggregators, reportings and rewards may be objects.
    """
    plan = plan or Plan()
    label = plan.task.name if is_reference(plan.task.name) else task.name
    plan = plan.changed(**{"task": label, "clients": task.clients, **options})
    return audit_subject(
        TaskSubject(task),
        plan,
        out=out,
        memory=memory,
        workers=workers,
        processes=processes,
        on=on,
        progress=progress,
    )


def audit_subject(
    subject: Subject,
    plan: Plan,
    *,
    out: str | Path | None = None,
    memory: int | None = None,
    workers: int | None = None,
    processes: bool = False,
    on: str = "",
    progress: Callable[[int], None] | None = None,
) -> Audit:
    """Run what is missing, judge it, and write the report; see `audit` for the arguments."""
    with ExitStack() as stack:
        if out is None:
            folder = (
                Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="verax-"))) / "audit"
            )
        else:
            folder = Path(out)
        run(
            plan,
            subject,
            folder,
            memory=memory,
            workers=workers,
            processes=processes,
            on=on,
            progress=progress,
        )
        judgement = judge(plan, subject, folder)
        found = searched(judgement, subject, folder, progress or (lambda rounds: None))
        summary = summarise(judgement, found, folder)
    if out is None:
        return Audit(judgement, summary, None)
    write_text(folder / "audit.json", json.dumps(summary, indent=1, ensure_ascii=False))
    proposed = spot_comment(summary["spot"], plan.prices.currency)
    write_text(folder / "terms.toml", terms_toml(judgement, searched_lines(summary)) + proposed)
    write_report(summary, folder / "report.html")
    return Audit(judgement, summary, folder)
