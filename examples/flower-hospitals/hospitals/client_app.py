"""A hospital: logistic regression on its own patients, with scikit-learn.

The mods are optional. If the terms ask for it, `signed` signs what is sent and `prescribed` makes
it repeatable; `identified` tells the operator's payment layer which partition a simulated node has;
`misreport` replaces the true update if the run's configuration says so.
"""

import numpy as np
from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from sklearn.linear_model import SGDClassifier
from sklearn.metrics import log_loss

from hospitals.data import patients
from verax.flower import identified, misreport, prescribed, signed

app = ClientApp(mods=[signed(), identified, prescribed(), misreport()])


@app.train()
def train(message: Message, context: Context) -> Message:
    """One round of local training."""
    config = context.run_config
    (x, y), _ = _own(context)
    model = SGDClassifier(
        loss="log_loss",
        penalty=None,
        learning_rate="constant",
        eta0=config["lr"],
        max_iter=config["epochs"],
        tol=None,
    )
    weights, bias = message.content["arrays"].to_numpy_ndarrays()
    model.fit(x, y, coef_init=weights, intercept_init=bias)
    arrays = ArrayRecord([model.coef_.astype(np.float32), model.intercept_.astype(np.float32)])
    metrics = MetricRecord({"num-examples": len(x)})
    return Message(RecordDict({"arrays": arrays, "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Loss and accuracy on the hospital's own test patients."""
    _, (x, y) = _own(context)
    weights, bias = message.content["arrays"].to_numpy_ndarrays()
    probability = 1 / (1 + np.exp(-(x @ weights[0] + bias[0])))
    loss = float(log_loss(y, probability, labels=[0, 1]))
    accuracy = float(np.mean((probability > 0.5) == (y == 1)))
    metrics = MetricRecord({"loss": loss, "accuracy": accuracy, "num-examples": len(x)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def samples(context: Context):
    """What the hospital trains on, to which it commits for spot checks."""
    return _own(context)[0]


def _own(context: Context):
    node = context.node_config
    return patients(int(node["partition-id"]), int(node["num-partitions"]))
