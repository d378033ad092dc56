"""The operator: FedAvg wrapped in `PaidStrategy`."""

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from flower_digits.task import initial, load
from verax.flower import PaidStrategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Train for as many rounds as the configuration says."""
    config = context.run_config
    task = load(config["model"], 3)
    strategy = PaidStrategy(
        FedAvg(
            min_train_nodes=3,
            min_evaluate_nodes=3,
            min_available_nodes=3,
            fraction_evaluate=1.0 if config["evaluate"] else 0.0,
        ),
        terms=config["terms"] or Path(__file__).parents[1] / "terms.toml",
        ledger=config["book"],
        federation=config["federation"],
        run=config["run-name"] or None,
        checkpoints=config["checkpoints"] or None,
        patience=float(config["patience"]),
        key=config["operator-key"] or None,
    )
    arrays = initial(task, config["seed"])
    rounds, timeout = config["num-server-rounds"], float(config["timeout"])
    strategy.start(grid, arrays, num_rounds=rounds, timeout=timeout)
