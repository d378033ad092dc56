"""Any of Flower's strategies on a small logistic regression; nothing here knows about audits."""

import numpy as np
from flwr.app import ArrayRecord, Context
from flwr.serverapp import Grid, ServerApp, strategy

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    kind = getattr(strategy, str(config["strategy"]))
    chosen = kind(fraction_train=config["fraction-train"])
    start = ArrayRecord([0.1 * np.random.randn(5).astype(np.float32)])  # noqa: NPY002
    result = chosen.start(grid, start, num_rounds=config["num-server-rounds"])
    np.save("final_model.npy", result.arrays.to_numpy_ndarrays()[0])
