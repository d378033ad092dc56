"""The frozen encoder: a tiny BERT of random weights against NumPy, ONNX, and the cache."""

import json
import math

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from verax.tasks.encoder import Encoder, embed

WIDTH, HEADS, LAYERS, INNER = 8, 2, 2, 16
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "day", "night", "so"]
TEXTS = ["good day", "bad", "so so so bad night", "unheard of"]


def make_tokenizer(folder):
    tokens = Tokenizer(models.WordLevel({w: k for k, w in enumerate(WORDS)}, unk_token="[UNK]"))
    tokens.pre_tokenizer = pre_tokenizers.Whitespace()
    tokens.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokens.save(str(folder / "tokenizer.json"))
    return tokens


def make_weights(rng):
    def normal(*shape):
        return rng.normal(scale=0.5, size=shape).astype(np.float32)

    w = {
        "embeddings.word_embeddings.weight": normal(len(WORDS), WIDTH),
        "embeddings.position_embeddings.weight": normal(32, WIDTH),
        "embeddings.token_type_embeddings.weight": normal(2, WIDTH),
    }
    norms = ["embeddings"]
    for k in range(LAYERS):
        at = f"encoder.layer.{k}"
        shapes = {f"attention.self.{n}": (WIDTH, WIDTH) for n in ("query", "key", "value")}
        shapes |= {"attention.output.dense": (WIDTH, WIDTH), "intermediate.dense": (INNER, WIDTH)}
        shapes["output.dense"] = (WIDTH, INNER)
        for name, shape in shapes.items():
            w[f"{at}.{name}.weight"], w[f"{at}.{name}.bias"] = normal(*shape), normal(shape[0])
        norms += [f"{at}.attention.output", f"{at}.output"]
    for name in norms:
        w[f"{name}.LayerNorm.weight"], w[f"{name}.LayerNorm.bias"] = normal(WIDTH), normal(WIDTH)
    return w


def bert_by_hand(w, ids):
    """One text, token by token and head by head, in float64."""
    w = {name: value.astype(np.float64) for name, value in w.items()}
    gelu = np.vectorize(lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2)

    def norm(x, name):
        out = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-12)
        return out * w[f"{name}.LayerNorm.weight"] + w[f"{name}.LayerNorm.bias"]

    def dense(x, name):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][: len(ids)]
    x = norm(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings")
    for k in range(LAYERS):
        at, heads = f"encoder.layer.{k}", []
        q, key, v = (dense(x, f"{at}.attention.self.{n}") for n in ("query", "key", "value"))
        for head in np.split(np.arange(WIDTH), HEADS):
            scores = q[:, head] @ key[:, head].T / math.sqrt(len(head))
            shares = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
            heads.append(shares @ v[:, head])
        mixed = dense(np.concatenate(heads, axis=1), f"{at}.attention.output.dense")
        x = norm(x + mixed, f"{at}.attention.output")
        inner = gelu(dense(x, f"{at}.intermediate.dense"))
        x = norm(x + dense(inner, f"{at}.output.dense"), f"{at}.output")
    return x


@pytest.fixture
def folder(tmp_path):
    """A tiny encoder; its tokenizer and weights."""
    tokens = make_tokenizer(tmp_path)
    weights = make_weights(np.random.default_rng(0))
    save_file(weights, tmp_path / "model.safetensors")
    settings = {"num_attention_heads": HEADS, "num_hidden_layers": LAYERS, "layer_norm_eps": 1e-12}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    return tmp_path, tokens, weights


@pytest.mark.parametrize("mean", [False, True])
def test_equals_bert_by_hand(folder, tmp_path, mean):
    path, tokens, weights = folder
    if mean:
        (path / "1_Pooling").mkdir()
        (path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    found = embed(Encoder(path), TEXTS, tmp_path / "cache")
    for text, vector in zip(TEXTS, found, strict=True):
        states = bert_by_hand(weights, tokens.encode(text).ids)
        np.testing.assert_allclose(vector, states.mean(0) if mean else states[0], atol=2e-5)


def test_older_names_of_weights_mean_the_same(folder, tmp_path):
    path, _, weights = folder
    expected = embed(Encoder(path), TEXTS, tmp_path / "one")
    renamed = {
        "bert."
        + name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): value
        for name, value in weights.items()
    }
    save_file(renamed, path / "model.safetensors")
    np.testing.assert_array_equal(embed(Encoder(path), TEXTS, tmp_path / "two"), expected)


def test_onnx(tmp_path):
    """A model whose state of a token is (its id, whether it is there)."""
    from onnx import TensorProto, helper, save

    make_tokenizer(tmp_path)
    names = ("input_ids", "attention_mask")
    puts = [helper.make_tensor_value_info(n, TensorProto.INT64, ["b", "t"]) for n in names]
    out = helper.make_tensor_value_info("states", TensorProto.FLOAT, ["b", "t", 2])
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [2])
    nodes = []
    for name in names:
        nodes.append(helper.make_node("Cast", [name], [f"{name}_f"], to=TensorProto.FLOAT))
        nodes.append(helper.make_node("Unsqueeze", [f"{name}_f", "axis"], [f"{name}_u"]))
    nodes.append(helper.make_node("Concat", [f"{n}_u" for n in names], ["states"], axis=2))
    graph = helper.make_graph(nodes, "tiny", puts, [out], [axis])
    opset = [helper.make_opsetid("", 17)]
    save(helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "model.onnx")
    (tmp_path / "1_Pooling").mkdir()
    (tmp_path / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    found = embed(Encoder(tmp_path), ["good day", "bad"], tmp_path / "cache")
    np.testing.assert_allclose(found, [[(2 + 4 + 6 + 3) / 4, 1], [(2 + 5 + 3) / 3, 1]])


def test_embeddings_are_kept_by_text_and_encoder(folder, tmp_path):
    path, _, weights = folder
    cache, heard = tmp_path / "cache", []
    first = embed(Encoder(path), TEXTS, cache, heard.append)
    assert sum(heard) == len(TEXTS)
    again = embed(Encoder(path), TEXTS, cache, heard.append)
    assert sum(heard) == len(TEXTS)
    np.testing.assert_array_equal(first, again)
    embed(Encoder(path), TEXTS[:2], cache, heard.append)
    assert sum(heard) == len(TEXTS) + 2
    weights["embeddings.word_embeddings.weight"] += 1
    save_file(weights, path / "model.safetensors")
    embed(Encoder(path), TEXTS, cache, heard.append)
    assert sum(heard) == 2 * len(TEXTS) + 2
    for kept in cache.glob("*.npy"):
        kept.write_bytes(b"damaged")
    np.testing.assert_array_equal(
        embed(Encoder(path), TEXTS, tmp_path / "new"), embed(Encoder(path), TEXTS, cache)
    )


def test_a_folder_that_is_no_encoder(tmp_path):
    with pytest.raises(ValueError, match=r"must hold tokenizer\.json and model\.onnx"):
        Encoder(tmp_path)
