"""Models of classification tasks, as pure functions; one file each."""

from verax.tasks.models.cnn import cnn
from verax.tasks.models.lstm import lstm
from verax.tasks.models.model import Model
from verax.tasks.models.perceptron import perceptron

__all__ = ["Model", "cnn", "lstm", "perceptron"]
