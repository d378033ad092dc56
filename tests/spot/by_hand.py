"""Distances and fines computed the plain way, without the code that checks members."""

import numpy as np

from verax.flower.prescribing import kept_file, read_kept, seed_of
from verax.spot.recompute import context_of, update_of


def distances(book, files, member, rounds):
    """‖m − g‖² and ‖g‖² of all rounds of the run "spring", from the kept files."""
    (name,) = book.federations()
    found = {}
    for t in range(1, rounds + 1):
        opening = book.opening(name, "spring", t)
        request, sent, kind = read_kept(kept_file(files.kept, member, "spring", t))
        seed = seed_of(opening.hash, "spring", t, member)
        honest = update_of(files.app, context_of(files.app, files.node_config), request, kind, seed)
        names = [name for name in honest if "num_batches" not in name]
        (sent,), (received,) = sent.array_records.values(), request.array_records.values()
        arrays = [[record[name].numpy().astype(float) for name in names]
                  for record in (honest, sent, received)]  # fmt: skip
        found[t] = [
            sum(float(np.sum((a - b) ** 2)) for a, b in zip(arrays[0], other, strict=True))
            for other in arrays[1:]
        ]
    return found


def fine(book, found, account):
    """c W/k Σ_j w² d over the draws, with weights from the members' example counts."""
    (name,) = book.federations()
    rounds = [r.content for r in book.records(name) if r.kind == "round"]
    counts = np.array(list(rounds[-1]["examples"].values()), dtype=float)
    others = np.delete(counts, account - 1)
    share = counts[account - 1] / counts.sum()
    effective = (1 + others.sum() ** 2 / (others**2).sum()) * share
    terms = book.terms(name)
    drawn = book.state(name).checked["spring"].drawn[account]
    total = sum(float(terms.price.at(t)[0]) for t in range(1, len(rounds) + 1))
    counted = [found[t][0] for t in drawn if found[t][0] > terms.spot.tolerance**2 * found[t][1]]
    return terms.spot.fine * total / terms.spot.rounds * effective**2 * sum(counted)
