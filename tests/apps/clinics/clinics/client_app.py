"""Each clinic has its own patients, of another size and with another rule."""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

app = ClientApp()


def patients(context: Context, part: str) -> tuple[np.ndarray, np.ndarray]:
    """The data of a clinic."""
    number = int(context.node_config["partition-id"])
    rng = np.random.default_rng([number, part == "test"])
    x = rng.standard_normal((40 + 20 * number, 5))
    x[:, 4] = 1.0
    rule = np.array([1.5, -1.0, 0.5 * number, 0.3, 0.8 * number - 0.8])
    return x, (x @ rule + rng.standard_normal(len(x)) > 0).astype(float)


def samples(context: Context) -> tuple[np.ndarray, np.ndarray]:
    """What a clinic trains on, to which it commits for spot checks."""
    return patients(context, "train")


def loss_of(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> float:
    """The mean logistic loss."""
    return float(np.mean(np.logaddexp(0, x @ w) - y * (x @ w)))


@app.train()
def train(message: Message, context: Context) -> Message:
    """One epoch over minibatches that are drawn with NumPy's global generator."""
    w = message.content["arrays"].to_numpy_ndarrays()[0].astype(float)
    x, y = patients(context, "train")
    order = np.random.permutation(len(x))
    size = context.run_config["batch"]
    for k in range(0, len(x), size):
        rows = order[k : k + size]
        error = 1 / (1 + np.exp(-x[rows] @ w)) - y[rows]
        w -= context.run_config["lr"] * x[rows].T @ error / len(rows)
    metrics = MetricRecord({"train_loss": loss_of(w, x, y), "num-examples": len(x)})
    content = {"arrays": ArrayRecord([w.astype(np.float32)]), "metrics": metrics}
    return Message(RecordDict(content), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Loss and accuracy on the clinic's own test patients."""
    w = message.content["arrays"].to_numpy_ndarrays()[0]
    x, y = patients(context, "test")
    right = float(np.mean((x @ w > 0) == (y > 0)))
    metrics = {"eval_loss": loss_of(w, x, y), "accuracy": right, "num-examples": len(x)}
    return Message(RecordDict({"metrics": MetricRecord(metrics)}), reply_to=message)
