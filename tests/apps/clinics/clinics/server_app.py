"""Any of Flower's strategies on a small logistic regression; nothing here knows about audits."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp, strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    name, share = str(config["strategy"]), config["fraction-train"]
    if name.startswith("DifferentialPrivacy"):  # wraps FedAvg
        chosen = getattr(strategy, name)(strategy.FedAvg(fraction_train=share), 0.1, 1.0, 3)
    else:
        chosen = getattr(strategy, name)(fraction_train=share)
    start = ArrayRecord([0.1 * np.random.randn(5).astype(np.float32)])
    result = chosen.start(grid, start, num_rounds=config["num-server-rounds"])
    np.save("final_model.npy", result.arrays.to_numpy_ndarrays()[0])
