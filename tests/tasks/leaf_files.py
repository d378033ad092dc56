"""LEAF-shaped files: small ones by hand, large ones by a generator that never holds them."""

import json

import numpy as np

WHITE, INK = "1.0", "0.0"


def write(folder, part, users, name="all_data_0_niid_0_keep_0"):
    """One file of {user: (x, y)}."""
    (folder / part).mkdir(parents=True, exist_ok=True)
    document = {
        "users": list(users),
        "num_samples": [len(y) for _, y in users.values()],
        "user_data": {user: {"x": x, "y": y} for user, (x, y) in users.items()},
    }
    path = folder / part / f"{name}_{part}.json"
    path.write_text(json.dumps(document))
    return path


def images(rng, count):
    """Pixels on LEAF's grid of 1/255, and labels."""
    x = rng.integers(0, 256, size=(count, 784)) / 255
    return x.tolist(), rng.integers(0, 62, size=count).tolist()


def write_large(path, users, samples, seed=0):
    """A file of users × samples images, written piece by piece; pixels from a few patterns."""
    rng = np.random.default_rng(seed)
    patterns = [
        "[" + ", ".join(WHITE if v > 0.2 else INK for v in rng.random(784)) + "]" for _ in range(20)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        names = [f"f{k:04d}" for k in range(users)]
        file.write(json.dumps({"users": names, "num_samples": [samples] * users})[:-1])
        file.write(', "user_data": {')
        for k, name in enumerate(names):
            chosen = rng.integers(0, len(patterns), samples)
            x = ", ".join(patterns[c] for c in chosen)
            labels = json.dumps((chosen % 62).tolist())
            comma = ", " if k else ""
            file.write(f'{comma}"{name}": {{"x": [{x}], "y": {labels}}}')
        file.write("}}")
