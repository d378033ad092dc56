"""Peer: pfl, the simulation framework of pfl-research, with its PyTorch back end.

Used as its tutorials do: `PyTorchModel`, `SimulatedBackend` and `FederatedAveraging` in one
process, users' data in memory as tensors, every user once in each cohort, no evaluation. A user's
data set is made each time that the user is sampled, so that is where the fresh batch or the
shuffled epoch comes from. FedSGD is FedAvg with one local step.

pfl's loop calls back after each round: the clock sits there. Only its printing of metrics after
each round is switched off (`send_metrics_to_platform`), for stdout is ours.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import TYPE_CHECKING

import torch
import torch_model
from harness import Stopwatch, parse_task, peak_rss_mb, report
from pfl.aggregate.simulate import SimulatedBackend
from pfl.aggregate.weighting import WeightByUser
from pfl.algorithm.base import NNAlgorithmParams
from pfl.algorithm.federated_averaging import FederatedAveraging
from pfl.callback.base import TrainingProcessCallback
from pfl.data.federated_dataset import FederatedDataset
from pfl.data.pytorch import PyTorchTensorDataset
from pfl.data.sampling import get_user_sampler
from pfl.hyperparam import NNTrainHyperParams
from pfl.metrics import Metrics, Weighted
from pfl.model.pytorch import PyTorchModel
from torch.nn.functional import cross_entropy
from work import BATCH, LEARNING_RATE, MODELS

if TYPE_CHECKING:
    from harness import Task


class Classifier(torch.nn.Module):
    """The model with the two methods that pfl asks for."""

    def __init__(self, network: torch.nn.Module) -> None:
        super().__init__()
        self.network = network

    def loss(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return cross_entropy(self.network(x), y)

    @torch.no_grad()
    def metrics(self, x: torch.Tensor, y: torch.Tensor) -> dict[str, Weighted]:
        return {"loss": Weighted(self.loss(x, y).item() * len(y), len(y))}


class Timekeeper(TrainingProcessCallback):
    """Start the clock after the warm-up and end the run when time is up."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._stopwatch = Stopwatch()

    def after_central_iteration(
        self, _metrics: Metrics, _model: PyTorchModel, *, central_iteration: int
    ) -> tuple[bool, Metrics]:
        rounds = central_iteration + 1 - self._task.warm_up
        if rounds == 0:
            self._stopwatch.start()
        if rounds <= 0 or not self._task.enough(rounds, self._stopwatch.seconds()):
            return False, Metrics()
        self.timing = self._stopwatch.stop(rounds)
        return True, Metrics()


def federated_dataset(task: Task) -> FederatedDataset:
    generator = torch.Generator().manual_seed(task.seed)
    users = [torch_model.data(task.model, user, task.seed) for user in range(task.clients)]

    def make_user(user: int) -> PyTorchTensorDataset:
        x, y = users[user]
        chosen = torch.cat(tuple(torch_model.batches(len(y), task.protocol, generator)))
        return PyTorchTensorDataset((x[chosen], y[chosen]), user_id=str(user))

    return FederatedDataset(make_user, get_user_sampler("minimize_reuse", range(task.clients)))


def main() -> None:
    task = parse_task(__doc__)
    torch.set_num_threads(1)
    classifier = Classifier(torch_model.build(task.model, task.seed))

    def local_optimizer(parameters: object, lr: float) -> torch.optim.SGD:
        return torch.optim.SGD(parameters, lr, weight_decay=MODELS[task.model].l2)

    # The mean of the users' differences is the step itself, hence a central rate of one.
    central_optimizer = torch.optim.SGD(classifier.parameters(), 1.0)
    dataset = federated_dataset(task)
    timekeeper = Timekeeper(task)
    FederatedAveraging().run(
        algorithm_params=NNAlgorithmParams(
            central_num_iterations=10**9,
            evaluation_frequency=10**9,
            train_cohort_size=task.clients,
            val_cohort_size=None,
        ),
        backend=SimulatedBackend(dataset, dataset, postprocessors=[WeightByUser()]),
        model=PyTorchModel(classifier, local_optimizer, central_optimizer),
        model_train_params=NNTrainHyperParams(
            local_num_epochs=1, local_learning_rate=LEARNING_RATE, local_batch_size=BATCH
        ),
        callbacks=[timekeeper],
        send_metrics_to_platform=False,
    )
    report(
        "pfl",
        version("pfl"),
        task,
        timekeeper.timing,
        torch_model.parameters(classifier.network),
        rss_mb=peak_rss_mb(),
        threads=torch.get_num_threads(),
    )


if __name__ == "__main__":
    main()
