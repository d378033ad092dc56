"""Tasks: data, model and loss, split among clients."""

from verax.learning.task import Task
from verax.tasks.digits import digits
from verax.tasks.quadratics import quadratics

__all__ = ["Task", "digits", "quadratics"]
