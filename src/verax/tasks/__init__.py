"""Tasks: data, model and loss, split among clients."""

from verax.learning.task import Task
from verax.tasks.cancer import cancer
from verax.tasks.digits import digits
from verax.tasks.femnist import femnist
from verax.tasks.named import TASKS, named
from verax.tasks.quadratics import quadratics
from verax.tasks.sent140 import sent140
from verax.tasks.shakespeare import shakespeare

__all__ = [
    "TASKS",
    "Task",
    "cancer",
    "digits",
    "femnist",
    "named",
    "quadratics",
    "sent140",
    "shakespeare",
]
