"""FedAvg on the model of the clinics, charged by the terms in the book."""

import importlib
import os

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from verax.flower import PaidStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for as many rounds as the configuration says."""
    config = context.run_config
    if os.environ["CLINICS"] == "torch_clinics":
        network = importlib.import_module("torch_clinics.model").network
        start = ArrayRecord(network().state_dict())
    else:
        start = ArrayRecord([np.full(5, 0.1, np.float32)])
    inner = FedAvg(fraction_evaluate=0.0, min_train_nodes=3, min_available_nodes=3)
    paid = PaidStrategy(inner, ledger=config["book"], run=config["run-name"])
    paid.start(grid, start, num_rounds=config["num-server-rounds"])
