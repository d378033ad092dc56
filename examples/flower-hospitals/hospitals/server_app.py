"""The operator: FedAvg, and payments if the run's configuration names terms."""

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
    strategy = FedAvg()
    if config["terms"]:
        strategy = PaidStrategy(
            strategy,
            terms=config["terms"],
            ledger=config["book"],
            federation=config["federation"],
            run=config["run-name"] or None,
        )
    start = ArrayRecord([np.zeros((1, 30), np.float32), np.zeros(1, np.float32)])
    strategy.start(grid, start, num_rounds=config["num-server-rounds"])
