"""The self-test: exact apps, inexact ones, and those that cannot be recomputed."""

from dataclasses import replace

import numpy as np
import pytest
from flwr.app import ArrayRecord, Message, RecordDict
from flwr.clientapp import ClientApp

from verax.spot.recompute import UnrepeatableError, self_test

NODE = {"partition-id": 1, "num-partitions": 3}


def changed(app, change):
    """The app with a ClientApp that adds something to each update of the honest one."""
    client = ClientApp()

    @client.train()
    def train(message, context):
        reply = app.client(message, context)
        w = reply.content["arrays"].to_numpy_ndarrays()[0]
        w = w + change(np.abs(w), context).astype(np.float32)
        return Message(RecordDict({"arrays": ArrayRecord([w])}), reply_to=message)

    return replace(app, client=client)


def test_an_app_that_uses_global_generators_is_exact(clinics):
    assert self_test(clinics, NODE) == 0.0


def test_an_inexact_app_has_a_relative_error(clinics):
    own = np.random.default_rng()
    noisy = changed(clinics, lambda size, _: 1e-5 * size * own.standard_normal(size.shape))
    assert 1e-8 < self_test(noisy, NODE) < 1e-3
    with pytest.raises(UnrepeatableError, match=r"differ by .* more than 1e-09"):
        self_test(noisy, NODE, limit=1e-9)


def test_an_app_with_a_generator_of_its_own_is_refused(clinics):
    own = np.random.default_rng()
    random = changed(clinics, lambda size, _: own.standard_normal(size.shape))
    with pytest.raises(UnrepeatableError, match="a generator that nobody seeds"):
        self_test(random, NODE)


def test_an_app_that_keeps_a_state_is_refused(clinics):
    def momentum(size, context):
        context.state["calls"] = ArrayRecord([np.ones(len(context.state) + 1)])
        return np.full(size.shape, float(context.state["calls"].to_numpy_ndarrays()[0].sum()))

    with pytest.raises(UnrepeatableError, match="keeps a state from round to round"):
        self_test(changed(clinics, momentum), NODE)
