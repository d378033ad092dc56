"""How similar clients are, against quadratics whose gradients are known."""

import numpy as np
import pytest

from verax.learning import Protocol, Seeds, Similarity, Simulator, Task, label_distances
from verax.learning.similarity import measure_similarity


def task(centres, spread, samples=4000):
    """F_i = ½‖θ − x‖² over samples around a centre: ∇F_i(0) = −centre, noise = spread²·d/batch."""
    import jax.numpy as jnp

    rng = np.random.default_rng(0)
    data = [
        ((c + s * rng.normal(size=(samples, 2))).astype(np.float32),)
        for c, s in zip(centres, spread, strict=True)
    ]
    return Task(
        "quadratics",
        data,
        data,
        init=lambda key: jnp.zeros(2),
        loss=lambda theta, batch: jnp.mean(jnp.sum((theta - batch[0]) ** 2, axis=-1)) / 2,
    )


def test_gradients_and_noise_are_found():
    centres = np.array([[3.0, 0.0], [0.0, 4.0], [3.0, 4.0]])
    simulator = Simulator(task(centres, (1.0, 2.0, 1.0)), Protocol(batch=8), 1)
    params = np.zeros(2, np.float32)
    (found,) = measure_similarity(simulator, [params], Seeds.of(0), batches=200)
    np.testing.assert_allclose(found.gram, centres @ centres.T, atol=0.5)
    # E‖e‖² = d·spread²/batch: 2/8, 8/8, 2/8; its own error over 200 batches is some 10 %
    np.testing.assert_allclose(found.noise, [0.25, 1.0, 0.25], rtol=0.25)
    np.testing.assert_allclose(found.cosines, [0.0, 0.6, 0.8], atol=0.03)
    assert found.rho == pytest.approx(np.sqrt(0.75), rel=0.2)
    # ‖∇F‖² = ‖(2, 8/3)‖² = 100/9; the farthest is client 2 with 25
    assert found.zeta == pytest.approx(np.sqrt(25 - 100 / 9), rel=0.05)


@pytest.mark.slow
def test_noise_does_not_pass_for_similarity():
    """Clients of opposite gradients under heavy noise: without bias their norms are theirs."""
    centres = np.array([[0.2, 0.0], [-0.2, 0.0]])
    simulator = Simulator(task(centres, (3.0, 3.0)), Protocol(batch=4), 1)
    found = [
        measure_similarity(simulator, [np.zeros(2, np.float32)], Seeds.of(s), batches=50)[0]
        for s in range(40)
    ]
    own = np.mean([np.diagonal(f.gram) for f in found], axis=0)
    error = np.std([np.diagonal(f.gram) for f in found], axis=0) / np.sqrt(40)
    assert np.all(np.abs(own - 0.04) < 4 * error)  # with the bias it would be 0.04 + 4.5/50
    assert np.all(4 * error < 4.5 / 50)


def test_a_gradient_hidden_by_noise_has_no_cosine():
    hidden = Similarity(np.array([[-0.1, 0.0], [0.0, 1.0]]), np.ones(2))
    assert np.isnan(hidden.cosines).all()


def test_label_distances():
    x = np.zeros((4, 1), np.float32)
    batches = [
        (x, np.array([0, 0, 1, 1])),
        (x, np.array([0, 0, 0, 0])),
        (x, np.array([2, 2, 2, 2])),
    ]
    np.testing.assert_allclose(label_distances(batches), [0.5, 1.0, 1.0])
    assert label_distances([(x, x), (x, x)]) is None
