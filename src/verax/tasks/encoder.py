"""A frozen text encoder of the BERT family: a folder in Hugging Face's layout, no torch.

The folder holds `tokenizer.json` and either `model.onnx` (run by onnxruntime) or
`model.safetensors` with `config.json` (run here, in JAX). A text's embedding is the output of its
first token, as is usual for BERT, or the mean over its tokens where `1_Pooling/config.json` says
so, as sentence encoders do. Embeddings are kept in the cache under the checksum of texts and
encoder.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from verax.files import cache_folder, write_with

_LONGEST = 128  # tokens; a tweet has fewer
_TOGETHER = 64  # texts
_STEP = 16  # lengths are rounded up to it, so that few shapes are compiled

Hidden = Callable[[NDArray[np.int32], NDArray[np.int32]], Any]


class Encoder:
    """Texts → embeddings.

    Args:
        folder: in Hugging Face's layout.
    """

    def __init__(self, folder: str | Path) -> None:
        try:
            import tokenizers
        except ImportError:
            raise ValueError(
                "a text encoder needs pip install '.[text]' in a clone of Verax"
            ) from None
        self.folder = Path(folder)
        names = ("onnx/model.onnx", "model.onnx", "model.safetensors")
        files = [self.folder / name for name in names if (self.folder / name).exists()]
        token_file = self.folder / "tokenizer.json"
        if not files or not token_file.exists():
            raise ValueError(
                f"{self.folder} is no encoder: it must hold tokenizer.json and model.onnx or "
                "model.safetensors"
            )
        self._model, self._files = files[0], [files[0], token_file]
        self._tokens = tokenizers.Tokenizer.from_file(str(token_file))
        self._tokens.enable_truncation(_LONGEST)
        self._tokens.no_padding()
        pooling = self.folder / "1_Pooling" / "config.json"
        said = json.loads(pooling.read_text(encoding="utf-8")) if pooling.exists() else {}
        self.mean = bool(said.get("pooling_mode_mean_tokens", False))

    @property
    def checksum(self) -> str:
        """SHA-256 of model, tokenizer and pooling."""
        digest = hashlib.sha256(b"mean" if self.mean else b"first")
        for path in self._files:
            with path.open("rb") as file:
                digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def __call__(self, texts: Sequence[str]) -> Iterator[tuple[NDArray[np.intp], NDArray[Any]]]:
        """Batch by batch: (places of the texts, their embeddings), the shortest first."""
        hidden = self._hidden()
        encoded = [e.ids for e in self._tokens.encode_batch(list(texts))]
        order = np.argsort([len(ids) for ids in encoded], kind="stable")
        for begin in range(0, len(order), _TOGETHER):
            places = order[begin : begin + _TOGETHER]
            longest = max(len(encoded[p]) for p in places)
            shape = (_TOGETHER, -(-longest // _STEP) * _STEP)
            ids, mask = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
            mask[:, 0] = 1  # the padding rows of the last batch
            for row, place in enumerate(places):
                ids[row, : len(encoded[place])] = encoded[place]
                mask[row, : len(encoded[place])] = 1
            states = np.asarray(hidden(ids, mask), dtype=np.float32)
            if self.mean:
                pooled = (states * mask[..., None]).sum(axis=1) / mask.sum(axis=1)[:, None]
            else:
                pooled = states[:, 0]
            yield places, pooled[: len(places)]

    def _hidden(self) -> Hidden:
        if self._model.suffix == ".onnx":
            return _onnx(self._model)
        from safetensors.numpy import load_file

        settings = json.loads((self.folder / "config.json").read_text(encoding="utf-8"))
        weights = {_plain(name): array for name, array in load_file(self._model).items()}
        heads = int(settings["num_attention_heads"])
        layers = int(settings["num_hidden_layers"])
        epsilon = float(settings.get("layer_norm_eps", 1e-12))
        return partial(_compiled_bert, weights, heads, layers, epsilon)


def embed(
    encoder: Encoder,
    texts: Sequence[str],
    cache: Path | None = None,
    progress: Callable[[int], None] | None = None,
) -> NDArray[np.float32]:
    """(texts, width), from the cache if texts and encoder are the same."""
    digest = hashlib.sha256(encoder.checksum.encode())
    for text in texts:
        digest.update(len(text.encode()).to_bytes(8, "big") + text.encode())
    folder = cache_folder() if cache is None else cache
    kept = folder / f"embeddings-{digest.hexdigest()[:16]}.npy"
    if kept.exists():
        try:
            return np.load(kept)
        except (ValueError, OSError, EOFError):
            kept.unlink()  # a damaged cache is written again
    result = np.zeros((len(texts), 0), np.float32)
    for places, vectors in encoder(texts):
        if not result.shape[1]:
            result = np.zeros((len(texts), vectors.shape[1]), np.float32)
        result[places] = vectors
        if progress is not None:
            progress(len(places))
    write_with(kept, lambda file: np.save(file, result))
    return result


def _onnx(path: Path) -> Hidden:
    import onnxruntime

    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    wanted = [put.name for put in session.get_inputs()]

    def hidden(ids: NDArray[np.int32], mask: NDArray[np.int32]) -> Any:
        given = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        return session.run(None, {name: given[name].astype(np.int64) for name in wanted})[0]

    return hidden


def _plain(name: str) -> str:
    """One name for what different releases call differently."""
    name = name.removeprefix("bert.")
    return name.replace("LayerNorm.gamma", "LayerNorm.weight").replace(
        "LayerNorm.beta", "LayerNorm.bias"
    )


@partial(jax.jit, static_argnums=(1, 2, 3))
def _compiled_bert(
    w: dict[str, Any], heads: int, layers: int, epsilon: float, ids: Any, mask: Any
) -> Any:
    """The states of the last layer, (texts, tokens, width)."""

    def normed(x: Any, name: str) -> Any:
        centred = x - x.mean(axis=-1, keepdims=True)
        scaled = centred * jax.lax.rsqrt((centred**2).mean(axis=-1, keepdims=True) + epsilon)
        return scaled * w[f"{name}.LayerNorm.weight"] + w[f"{name}.LayerNorm.bias"]

    def dense(x: Any, name: str) -> Any:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    texts, tokens = ids.shape
    x = jnp.asarray(w["embeddings.word_embeddings.weight"])[ids]
    x = x + w["embeddings.position_embeddings.weight"][:tokens]
    x = normed(x + w["embeddings.token_type_embeddings.weight"][0], "embeddings")
    hide = jnp.where(mask[:, None, None, :] > 0, 0.0, -1e9)
    for k in range(layers):
        at = f"encoder.layer.{k}"

        def split(name: str, x: Any = x, at: str = at) -> Any:
            return dense(x, f"{at}.attention.self.{name}").reshape(texts, tokens, heads, -1)

        q, key, v = split("query"), split("key"), split("value")
        scores = jnp.einsum("bqhd,bkhd->bhqk", q, key) / np.sqrt(q.shape[-1]) + hide
        mixed = jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores, axis=-1), v)
        mixed = dense(mixed.reshape(texts, tokens, -1), f"{at}.attention.output.dense")
        x = normed(x + mixed, f"{at}.attention.output")
        inner = jax.nn.gelu(dense(x, f"{at}.intermediate.dense"), approximate=False)
        x = normed(x + dense(inner, f"{at}.output.dense"), f"{at}.output")
    return x
