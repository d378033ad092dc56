"""The paper's models against PyTorch and against loops in NumPy, and their fast gradients."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from numpy.testing import assert_allclose

from verax.learning import Behaviour, Protocol, Seeds, Simulator, Task
from verax.learning.factored import dense
from verax.tasks.models import cnn, lstm, perceptron
from verax.tasks.models.cnn import features
from verax.tasks.models.cnn_on_cpu import features_on_cpu

# Loss and, per parameter, the gradient's mean of absolute values and its inner product with
# cos(0, 1, 2, …). Made once, by `summary` of what
# `torch_loss_and_gradients` below returned with torch 2.13.0.
GOLDEN: dict[str, dict[str, tuple[float, ...]]] = {
    "cnn": {
        "loss": (1.974885,),
        "conv1.bias": (0.002483919, -0.0007933932),
        "conv1.weight": (0.001921733, 0.06946586),
        "conv2.bias": (0.004921377, 0.0436739),
        "conv2.weight": (0.002202007, -0.1254791),
        "linear1.bias": (0.04696775, -0.3802738),
        "linear1.weight": (0.01615735, 0.1214656),
        "linear2.bias": (0.1665273, -0.2531553),
        "linear2.weight": (0.002182154, 0.01210796),
    },
    "lstm": {
        "loss": (2.519551,),
        "embedding.weight": (0.002509443, 0.1106165),
        "linear.bias": (0.121781, -0.07416344),
        "linear.weight": (0.01348724, 0.2432571),
        "lstm.bias_hh_l0": (0.005906724, 0.06135874),
        "lstm.bias_hh_l1": (0.02229571, 0.3416411),
        "lstm.bias_ih_l0": (0.005906724, 0.06135874),
        "lstm.bias_ih_l1": (0.02229571, 0.3416411),
        "lstm.weight_hh_l0": (0.001267957, 0.02029308),
        "lstm.weight_hh_l1": (0.002637304, 0.04960705),
        "lstm.weight_ih_l0": (0.003435354, 0.04262211),
        "lstm.weight_ih_l1": (0.004785508, 0.03522956),
    },
}


def waves(shape, size, start):
    """Parameters by formula: size · sin(start + 0, 1, 2, …), the same in every library."""
    count = int(np.prod(shape))
    return (size * np.sin(start + np.arange(count))).reshape(shape).astype(np.float32)


def cnn_case():
    """Parameters in PyTorch's names and layouts, and a batch of three images."""
    shapes = {
        "conv1": (32, 1, 5, 5),
        "conv2": (64, 32, 5, 5),
        "linear1": (24, 3136),
        "linear2": (7, 24),
    }
    params = {}
    for k, (name, shape) in enumerate(shapes.items()):
        size = 1.5 * np.prod(shape[1:]) ** -0.5
        params[f"{name}.weight"] = waves(shape, size, k)
        params[f"{name}.bias"] = waves(shape[:1], size, k + 0.5)
        if name.startswith("conv"):
            params[f"{name}.weight"][0] = 0  # all its outputs tie: the pool must take the first
    x = (np.arange(3 * 784).reshape(3, 28, 28) ** 2 % 251).astype(np.uint8)
    return params, x, np.array([0, 3, 6], np.int32)


def lstm_case():
    units, classes = 12, 10
    params = {"embedding.weight": waves((classes, 8), 1.0, 0.2)}
    for k, width in enumerate((8, units)):
        params[f"lstm.weight_ih_l{k}"] = waves((4 * units, width), 0.5, 1 + k)
        params[f"lstm.weight_hh_l{k}"] = waves((4 * units, units), 0.5, 3 + k)
        params[f"lstm.bias_ih_l{k}"] = waves((4 * units,), 0.3, 5 + k)
        params[f"lstm.bias_hh_l{k}"] = waves((4 * units,), 0.2, 7 + k)
    params["linear.weight"] = waves((classes, units), 0.5, 9)
    params["linear.bias"] = waves((classes,), 0.5, 10)
    tokens = (np.arange(4 * 9).reshape(4, 9) ** 2 % classes).astype(np.uint8)
    return params, tokens, np.array([1, 0, 9, 4], np.int32)


def ours_cnn(params):
    """PyTorch's parameters as ours: the features are in another order."""
    tree = {}
    for name in ("conv1", "conv2", "linear1", "linear2"):
        weight = params[f"{name}.weight"]
        if name == "linear1":
            weight = weight.reshape(-1, 64, 7, 7).transpose(0, 2, 3, 1).reshape(len(weight), -1)
        tree[name] = {"weight": jnp.asarray(weight), "bias": jnp.asarray(params[f"{name}.bias"])}
    return tree


def theirs_cnn(tree):
    flat = {
        f"{name}.{kind}": np.asarray(v) for name, part in tree.items() for kind, v in part.items()
    }
    weight = flat["linear1.weight"]
    flat["linear1.weight"] = (
        weight.reshape(-1, 7, 7, 64).transpose(0, 3, 1, 2).reshape(weight.shape)
    )
    return flat


def ours_lstm(params):
    def layer(k):
        return {
            "input": jnp.asarray(params[f"lstm.weight_ih_l{k}"]),
            "recurrent": jnp.asarray(params[f"lstm.weight_hh_l{k}"]),
            "bias": jnp.asarray(params[f"lstm.bias_ih_l{k}"] + params[f"lstm.bias_hh_l{k}"]),
        }

    return {
        "embedding": jnp.asarray(params["embedding.weight"]),
        "layers": [layer(0), layer(1)],
        "linear": {
            "weight": jnp.asarray(params["linear.weight"]),
            "bias": jnp.asarray(params["linear.bias"]),
        },
    }


def theirs_lstm(tree):
    flat = {"embedding.weight": tree["embedding"]}
    for k, layer in enumerate(tree["layers"]):
        flat[f"lstm.weight_ih_l{k}"] = layer["input"]
        flat[f"lstm.weight_hh_l{k}"] = layer["recurrent"]
        flat[f"lstm.bias_ih_l{k}"] = flat[f"lstm.bias_hh_l{k}"] = layer["bias"]
    flat |= {f"linear.{kind}": value for kind, value in tree["linear"].items()}
    return {name: np.asarray(value) for name, value in flat.items()}


def torch_loss_and_gradients(name):
    """The same model of PyTorch's layers: scores, loss, gradients by name."""
    import torch
    from torch import nn

    params, x, labels = CASES[name][1]()

    class Cnn(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(1, 32, 5, padding=2)
            self.conv2 = nn.Conv2d(32, 64, 5, padding=2)
            self.linear1 = nn.Linear(3136, 24)
            self.linear2 = nn.Linear(24, 7)

        def forward(self, x):
            x = x.float()[:, None] / 255
            for conv in (self.conv1, self.conv2):
                x = nn.functional.max_pool2d(conv(x).relu(), 2)
            return self.linear2(self.linear1(x.flatten(1)).relu())

    class Lstm(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(10, 8)
            self.lstm = nn.LSTM(8, 12, num_layers=2, batch_first=True)
            self.linear = nn.Linear(12, 10)

        def forward(self, x):
            return self.linear(self.lstm(self.embedding(x.long()))[0][:, -1])

    model = {"cnn": Cnn, "lstm": Lstm}[name]()
    model.load_state_dict({key: torch.from_numpy(value) for key, value in params.items()})
    scores = model(torch.from_numpy(x))
    loss = nn.functional.cross_entropy(scores, torch.from_numpy(labels).long())
    loss.backward()
    gradients = {key: value.grad.numpy() for key, value in model.named_parameters()}
    return scores.detach().numpy(), loss.item(), gradients


def summary(loss, gradients):
    """What GOLDEN holds."""
    found = {"loss": (float(loss),)}
    for name, g in sorted(gradients.items()):
        g = g.astype(np.float64).ravel()
        found[name] = (float(np.abs(g).mean()), float(g @ np.cos(np.arange(g.size))))
    return found


def jit(function):
    """Compiled in a hurry: the tests spend their time on compiling, not on running."""
    return jax.jit(function, compiler_options={"xla_backend_optimization_level": 0})


def compiled(model):
    """The model's functions, each compiled once for all tests.

    `plain` is the plain model's loss and gradient by `jax.grad`, `fast` what training uses.
    """
    names = ("init", "scores", "loss")
    return SimpleNamespace(
        model=model,
        plain=jit(jax.value_and_grad(model.loss)),
        fast=jit(lambda params, batch: dense(model.gradient(params, batch))),
        **{name: jit(getattr(model, name)) for name in names},
    )


CASES = {
    "cnn": (compiled(cnn(classes=7, hidden=24)), cnn_case, ours_cnn, theirs_cnn),
    "lstm": (compiled(lstm(classes=10, units=12)), lstm_case, ours_lstm, theirs_lstm),
}


def case(name):
    model, make, ours, theirs = CASES[name]
    params, x, labels = make()
    return model, ours(params), (jnp.asarray(x), jnp.asarray(labels)), theirs


def assert_near(found, truth, tolerance=1e-4):
    """Two trees equal to within `tolerance` of the largest number of each array, in float32."""

    def near(a, b):
        assert_allclose(a, b, rtol=0, atol=tolerance * max(float(np.abs(b).max()), 1e-6))

    jax.tree.map(near, found, truth)


@pytest.mark.parametrize("way", ["plain", "fast"])
@pytest.mark.parametrize("name", CASES)
def test_equals_pytorch(name, way):
    pytest.importorskip("torch", reason="needs PyTorch: pip install torch==2.13.0")
    model, params, batch, theirs = case(name)
    scores, loss, gradients = torch_loss_and_gradients(name)
    assert_allclose(model.scores(params, batch[0]), scores, rtol=1e-4, atol=1e-5)
    value, gradient = getattr(model, way)(params, batch)
    assert_allclose(value, loss, rtol=1e-5)
    found = theirs(gradient)
    assert set(found) == set(gradients)
    for key, truth in gradients.items():
        assert_allclose(found[key], truth, rtol=1e-4, atol=1e-4 * np.abs(truth).max())


@pytest.mark.parametrize("way", ["plain", "fast"])
@pytest.mark.parametrize("name", CASES)
def test_equals_what_pytorch_gave(name, way):
    model, params, batch, theirs = case(name)
    value, gradient = getattr(model, way)(params, batch)
    found = summary(value, theirs(gradient))
    assert set(found) == set(GOLDEN[name])
    for key, numbers in GOLDEN[name].items():
        assert_allclose(found[key], numbers, rtol=1e-4, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", CASES)
def test_the_fast_gradient_is_the_plain_one(name):
    model, params, batch, _ = case(name)
    value, gradient = model.fast(params, batch)
    truth, plain = model.plain(params, batch)
    assert_allclose(value, truth, rtol=1e-6)
    assert_near(gradient, plain)


@pytest.mark.parametrize("name", CASES)
def test_the_fast_scores_are_the_plain_ones(name):
    model, params, (x, _), _ = case(name)
    assert_near(jit(model.model.fast_scores)(params, x), model.scores(params, x))


@pytest.mark.parametrize("name", CASES)
def test_evaluation_gives_the_plain_loss_and_accuracy(name):
    model, params, batch, _ = case(name)
    plain, evaluated = model.model, model.model.for_evaluation()
    assert (evaluated.scores is plain.fast_scores) == (name == "cnn")
    assert_allclose(jit(evaluated.loss)(params, batch), plain.loss(params, batch), rtol=1e-6)
    assert jit(evaluated.accuracy)(params, batch) == plain.accuracy(params, batch)


@pytest.mark.parametrize("name", CASES)
def test_clients_and_runs_at_once_equal_one_by_one(name):
    model, params, (x, labels), _ = case(name)
    runs = jax.tree.map(lambda leaf: jnp.stack([leaf, 0.5 * leaf]), params)
    xs, ys = jnp.stack([x, x[::-1]]), jnp.stack([labels, labels])
    every = jit(
        jax.vmap(lambda p: jax.vmap(lambda a, b: dense(model.model.gradient(p, (a, b))))(xs, ys))
    )(runs)
    runs, xs, ys, every = jax.tree.map(np.asarray, (runs, xs, ys, every))
    for r in range(2):
        for i in range(2):
            params = jax.tree.map(lambda leaf, r=r: leaf[r], runs)
            found = jax.tree.map(lambda leaf, r=r, i=i: leaf[r, i], every)
            assert_near(found, model.plain(params, (xs[i], ys[i])))


def test_features_equal_a_loop():
    """Convolutions, pools and ReLU pixel by pixel, in PyTorch's order of operations."""
    params, x, _ = cnn_case()
    maps = x[:1].astype(np.float64)[0][None] / 255  # (channels, side, side)
    for name in ("conv1", "conv2"):
        weight, bias = params[f"{name}.weight"], params[f"{name}.bias"]
        side = maps.shape[1]
        padded = np.pad(maps, ((0, 0), (2, 2), (2, 2)))
        out = np.zeros((len(weight), side, side))
        for i in range(side):
            for j in range(side):
                patch = padded[:, i : i + 5, j : j + 5]
                out[:, i, j] = np.maximum((weight * patch).sum(axis=(1, 2, 3)) + bias, 0)
        maps = np.zeros((len(weight), side // 2, side // 2))
        for i in range(side // 2):
            for j in range(side // 2):
                maps[:, i, j] = out[:, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max(axis=(1, 2))
    images = jnp.asarray(x[:1], jnp.float32) / 255
    truth = maps.transpose(1, 2, 0)[None]
    filters = {name: ours_cnn(params)[name] for name in ("conv1", "conv2")}
    for function in (features, features_on_cpu):
        assert_allclose(jit(function)(filters, images), truth, rtol=1e-4, atol=1e-5)


def test_scores_of_the_lstm_equal_a_loop():
    params, tokens, _ = lstm_case()
    model, ours, (x, _), _ = case("lstm")
    scores = model.scores(ours, x)

    def sigma(v):
        return 1 / (1 + np.exp(-v))

    for row, found in zip(tokens, scores, strict=True):
        h, c = np.zeros((2, 12)), np.zeros((2, 12))
        for token in row:
            value = params["embedding.weight"][token].astype(np.float64)
            for k in range(2):
                gates = params[f"lstm.weight_ih_l{k}"] @ value + params[f"lstm.bias_ih_l{k}"]
                gates = gates + params[f"lstm.weight_hh_l{k}"] @ h[k]
                gates = gates + params[f"lstm.bias_hh_l{k}"]
                for u in range(12):
                    i, f, g, o = gates[u], gates[12 + u], gates[24 + u], gates[36 + u]
                    c[k, u] = sigma(f) * c[k, u] + sigma(i) * np.tanh(g)
                    h[k, u] = sigma(o) * np.tanh(c[k, u])
                value = h[k]
        truth = params["linear.weight"] @ h[1] + params["linear.bias"]
        assert_allclose(found, truth, rtol=1e-4, atol=1e-5)


def test_three_channels_are_the_grey_image_three_times():
    wide, grey = compiled(cnn(7, channels=3, hidden=24)), CASES["cnn"][0]
    params, x, labels = cnn_case()
    one = ours_cnn(params)
    shares = jnp.asarray([0.2, 0.5, 0.3])[None, :, None, None]
    three = one | {"conv1": one["conv1"] | {"weight": one["conv1"]["weight"] * shares}}
    assert wide.init(jax.random.key(0))["conv1"]["weight"].shape == (32, 3, 5, 5)
    assert_allclose(wide.scores(three, x), grey.scores(one, x), rtol=1e-4, atol=1e-5)
    truth = grey.plain(one, (x, labels))[1]["conv1"]["weight"]
    for gradient in (wide.plain, wide.fast):
        found = gradient(three, (x, labels))[1]["conv1"]["weight"]
        assert found.shape == (32, 3, 5, 5)
        assert_near(found, np.repeat(truth, 3, axis=1))


def test_images_may_be_bytes_fractions_or_flat():
    model, params, (x, _), _ = case("cnn")
    scores = model.scores(params, x)
    assert_allclose(model.scores(params, x.astype(jnp.float32) / 255), scores, rtol=1e-5)
    assert_allclose(model.scores(params, x.reshape(3, 784)), scores, rtol=1e-6)


@pytest.mark.parametrize(
    ("model", "count"),
    [
        (cnn(), 32 * 26 + 64 * 801 + 2048 * 3137 + 62 * 2049),
        (lstm(), 640 + 1024 * (8 + 256 + 1) + 1024 * 513 + 80 * 257),
        (perceptron((768, 384, 2)), 384 * 769 + 2 * 385),
    ],
)
def test_sizes_of_the_papers_models(model, count):
    shapes = jax.eval_shape(model.init, jax.random.key(0))
    assert sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(shapes)) == count


def test_parameters_start_as_pytorchs():
    """Uniform in ±1/√fan-in: the range is kept and filled, the variance is a third of its square.

    A layer's one bias is the sum of two, so its range is twice as wide; embeddings are N(0, 1).
    """
    image = jit(cnn(hidden=100).init)(jax.random.key(1))
    text = jit(lstm().init)(jax.random.key(2))
    image, text = jax.tree.map(np.asarray, (image, text))
    uniform = [
        (image["conv1"]["weight"], 25),
        (image["conv1"]["bias"], 25),
        (image["conv2"]["weight"], 800),
        (image["linear1"]["weight"], 3136),
        (image["linear2"]["weight"], 100),
        (text["layers"][0]["input"], 256),
        (text["layers"][1]["recurrent"], 256),
        (text["linear"]["weight"], 256),
    ]
    for leaf, fan_in in uniform:
        bound = fan_in**-0.5
        assert 0.8 * bound < float(np.max(np.abs(leaf))) <= bound
        if leaf.size > 500:
            assert float(np.var(leaf)) == pytest.approx(bound**2 / 3, rel=0.15)
    bias = text["layers"][1]["bias"]
    assert 1 / 16 < float(np.max(np.abs(bias))) <= 2 / 16
    assert float(np.std(text["embedding"])) == pytest.approx(1, rel=0.1)


@pytest.mark.parametrize("name", CASES)
def test_a_simulator_uses_the_fast_gradient(name):
    model, _, batch, _ = case(name)
    x, labels = (np.asarray(part) for part in batch)
    task = Task(
        name,
        [(x, labels), (x[::-1], labels)],
        [(x, labels)] * 2,
        model.model.init,
        model.model.loss,
        model.model.accuracy,
        fast_gradient=model.model.gradient,
    )
    T, step = 3, {"cnn": 0.05, "lstm": 0.5}[name]
    simulator = Simulator(task, Protocol(step=step, batch=len(labels)), T)
    found = simulator.run(Seeds.of(0), [Behaviour()])
    params = model.init(jax.random.key(Seeds.of(0).init))
    for t in range(T):
        index = simulator.sample_positions(Seeds.of(0), t, 1)[0]
        gradients = [
            model.plain(params, tuple(np.asarray(a)[index[i, 0]] for a in own))[1]
            for i, own in enumerate(task.train)
        ]
        params = jax.tree.map(lambda p, a, b: p - step * (a + b) / 2, params, *gradients)
    jax.tree.map(
        lambda leaf, truth: assert_allclose(leaf[0], truth, rtol=1e-3, atol=1e-5),
        found.state.params,
        params,
    )
