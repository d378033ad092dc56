"""The audit in three lines: run what is missing, judge it, write the report.

```python
from verax.audit import audit
from verax.tasks import digits

print(audit(digits(), rounds=100, judging_seeds=2, setting_seeds=1))
```
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from verax.audit.judge import Judgement, judge
from verax.audit.plan import Plan
from verax.audit.propose import propose, terms_toml
from verax.audit.report import write_report
from verax.audit.run import run
from verax.audit.summary import summary
from verax.files import write_text
from verax.learning import Task
from verax.mechanism import Terms

__all__ = ["Audit", "audit"]


@dataclass(frozen=True, eq=False)
class Audit:
    """A finished audit.

    Attributes:
        judgement: all numbers, as arrays.
        summary: the documented JSON object.
        folder: where record, report, figures and terms are, or None if nothing was kept.
    """

    judgement: Judgement
    summary: dict[str, Any]
    folder: Path | None

    @property
    def window(self) -> tuple[float, float] | None:
        """Prices (for the profile: multipliers) at which nothing tried gains, or None."""
        found = self.summary["window"]
        if found is None:
            return None
        return found["low"], float("inf") if found["high"] is None else found["high"]

    @property
    def terms(self) -> Terms:
        """What the audit proposes to charge by."""
        return propose(self.judgement)

    def __str__(self) -> str:
        return "\n".join(self.summary["verdict"])


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
    **changes: Any,
) -> Audit:
    """Does anybody gain by misreporting on this task, and which price stops it?

    Args:
        task: data, model and loss.
        plan: what to try; default: `Plan()` for the task's number of clients.
        out: folder for record, report, figures and terms; an audit of the same plan that was begun
            there is continued. Default: nothing is kept.
        memory: bytes that may be used (default: half of what is free).
        workers: how many jobs at a time (default: as many as cores).
        processes: workers are processes; for tasks that the plan itself describes.
        on: "ray", or "ray://host:port" of a cluster, instead of this machine's cores.
        progress: called with the number of run-rounds just done.
        changes: fields of the plan to set.
    """
    plan = replace(plan or Plan(), task=task.name, clients=task.clients, **changes)
    options: dict[str, Any] = {
        "memory": memory,
        "workers": workers,
        "processes": processes,
        "on": on,
        "progress": progress,
    }
    if out is None:
        with tempfile.TemporaryDirectory(prefix="verax-") as folder:
            run(plan, task, Path(folder) / "audit", **options)
            judgement = judge(plan, task, Path(folder) / "audit")
            return Audit(judgement, summary(judgement, Path(folder) / "audit"), None)
    folder = Path(out)
    run(plan, task, folder, **options)
    judgement = judge(plan, task, folder)
    found = summary(judgement, folder)
    write_text(folder / "audit.json", json.dumps(found, indent=1, ensure_ascii=False))
    write_text(folder / "terms.toml", terms_toml(judgement))
    from verax.audit import figures  # here, so that workers need not load matplotlib

    figures.draw(found, folder / "figures")
    write_report(found, folder / "report.html")
    return Audit(judgement, found, folder)
