"""Writer and verifier hold records to the same rules: whatever one accepts the other accepts.

Valid books are changed at random (fields, types, texts of terms, order), chained and signed again,
and given to both: the verifier checks an export, the writer imports it.
"""

import json
import math
from pathlib import Path

import forgeries
import pytest
from forgeries import chained, export_bytes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from signed_book import signed_book
from spot_book import spot_book

import verax.console
from verax.ledger import Book, BookError, look_alikes
from verax.ledger.export import import_book
from verax.ledger.names import as_seen, check_name
from verax.ledger.records import decode
from verax.verifier import forms, verify
from verax.verifier.look_alikes import LOOK_ALIKES_TABLE

VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 12),
    st.sampled_from([2**31, 2**63 - 1, 2**63, -(2**63), 10**9, 10**9 + 1]),
    st.floats(allow_nan=False, allow_infinity=False),
    st.sampled_from([0.0, -0.0, 0.5, 1.0, 1e-9, 1e300]),
    st.text(max_size=8),
    st.sampled_from(["a", "North", "NORTH", "first", "missing", "ok", "norms", "gram", "d-1"]),
    st.lists(st.one_of(st.integers(-2, 5), st.floats(-5, 5), st.none()), max_size=4),
    st.dictionaries(st.sampled_from(["1", "2", "3", "9", "01", "x"]),
                    st.sampled_from(["missing", "ok", 0.5, 1.0, 2.0, "", "why"]), max_size=3),
)  # fmt: skip
TEXTS = st.sampled_from([
    ("0.5", "0.25"), ("0.5", "-1.0"), ("0.5", "1"), ("0.5", '"x"'), ("scale = 2", "scale = 19"),
    ("scale = 2", "scale = true"), ("reported", "equal"), ("reported", "fixed"),
    ("largest", "excuse"), ("largest", "flat-fee"), ("fee = 0.0", "fee = 3.0"), ("EUR", " "),
    ("quorum = 2", "quorum = 1"), ("quorum = 2", "quorum = 0"), ("warn", "stop"), ("warn", "x"),
    ("discount = 0.0", "discount = 0.5"), ("rounds = 0", "rounds = 9"),
    ("rounds = 0", "rounds = -1"),
    ("notice_rounds = 1", "notice_rounds = 0"), ("notice_rounds = 1", "notice_rounds = 3"),
    ("squared-norm", "none"), ("squared-norm", "a:b"), ("squared-norm", "groves-ledyard"),
    ("[price]", "worth = [3.0]\n[price]"), ("[price]", "worth = [0.0]\n[price]"),
    ("[price]", 'members = ["a", "b", "c"]\n[price]'), ("[price]", "[prices]"),
    ("[price]", "allowances = [[0.5, -0.5]]\n[price]"), ("uncharged", "charged"),
    ("[weights]", "[audited]\nmessage = 'gradient'\n[weights]"), ('"settlement"', '"terms"'),
    ("required", "optional"), ("required", "none"), ("required", "x"), ("operator+", "+"),
    ("fine = 10.0", "fine = -1.0"), ("fine = 10.0", "fine = 3.0"), ("auditor+", "x"),
    ("tolerance = 0.001", "tolerance = 1.0"), ("refused = 5.0", "refused = inf"),
    ("rounds = 3", "rounds = 0"), ("rounds = 3", "rounds = 2"), ("missing = 7.0", "missing = 1e30"),
    ('"settlement"', '"time", "skip"'), ('"settlement"', '"deposit"'), ('"settlement"', ""),
    ("starts = [\n    1,", "starts = [\n    1, 3,"), ("inf", "nan"),
])  # fmt: skip


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    folder = tmp_path_factory.mktemp("originals")
    forgeries.open_book(folder / "open.db")
    forgeries.closed_book(folder / "closed.db")
    signed_book(folder / "signed.db")
    spot_book(folder / "spot.db")
    return (
        forgeries.contents(folder / "open.db", "clinics", folder),
        forgeries.contents(folder / "closed.db", "banks", folder),
        forgeries.contents(folder / "signed.db", "clinics", folder),
        forgeries.contents(folder / "spot.db", "clinics", folder),
    )


def change(data, records):
    """One random change of the records."""
    k = data.draw(st.integers(0, len(records) - 1), "record")
    record = records[k]
    how = data.draw(st.sampled_from(["field", "inside", "text", "drop", "copy", "swap", "key"]))
    keys = sorted(set(record) - {"sequence", "previous"})
    if how == "drop":
        del records[k]
    elif how == "copy":
        records.insert(data.draw(st.integers(0, len(records))), dict(record))
    elif how == "swap":
        other = data.draw(st.integers(0, len(records) - 1))
        records[k], records[other] = records[other], records[k]
    elif how == "key":
        record.pop(data.draw(st.sampled_from(keys)))
    elif how == "text" and isinstance(record.get("terms"), str) and len(record["terms"]) > 64:
        forgeries.terms(k + 1, "", "")(records)
        old, new = data.draw(TEXTS)
        if old in record["terms"]:
            forgeries.terms(k + 1, old, new)(records)
    elif how == "inside":
        lists = [key for key in keys if isinstance(record[key], list) and record[key]]
        if lists:
            column = record[data.draw(st.sampled_from(lists))]
            i = data.draw(st.integers(0, len(column) - 1))
            column[i] = data.draw(VALUES)
    else:
        record[data.draw(st.sampled_from(keys))] = data.draw(VALUES)


def test_both_come_to_the_same_verdict(originals, tmp_path):
    seen = {True: 0, False: 0}

    @settings(max_examples=400, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data):
        records = json.loads(json.dumps(originals[data.draw(st.integers(0, 3))]))
        change(data, records)
        try:
            lines = chained(records)
        except (BookError, AttributeError, TypeError):  # a note that cannot be signed again
            return
        export = tmp_path / "export.jsonl"
        export.write_bytes(export_bytes(lines))
        found = verify(export)
        target = tmp_path / "copy.db"
        for part in tmp_path.glob("copy.db*"):
            part.unlink()
        with Book.create(target) as book:
            try:
                import_book(book, export)
                error = None
            except BookError as refused:
                error = refused
        seen[found.ok] += 1
        assert found.ok == (error is None), (found.findings, error)

    check()
    assert min(seen.values()) > 20, seen


JSONS = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text()),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


def test_both_decode_the_same_lines(originals):
    lines = [chained(json.loads(json.dumps(records))) for records in originals]
    every = [line for book in lines for line in book]
    accepted = 0

    @settings(max_examples=1500, suppress_health_check=list(HealthCheck))
    @given(st.data())
    def check(data):
        nonlocal accepted
        content = json.loads(data.draw(st.sampled_from(every)))
        key = data.draw(st.sampled_from(sorted(content)))
        content[key] = data.draw(st.one_of(JSONS, VALUES, st.just(content[key])))
        text = json.dumps(content, ensure_ascii=data.draw(st.booleans()))
        line = text.encode("utf-8", "surrogatepass")
        verdicts = []
        for read in (decode, forms.decode):
            try:
                read(line)
                verdicts.append(True)
            except (ValueError, forms.WrongRecordError):
                verdicts.append(False)
        assert verdicts[0] == verdicts[1], line
        accepted += verdicts[0]

    check()
    assert accepted > 20


def test_all_three_have_the_same_table_of_look_alikes():
    in_browser = Path(verax.console.__file__).with_name("static") / "verify" / "look-alikes.js"
    assert look_alikes.TABLE == LOOK_ALIKES_TABLE
    assert f"`{look_alikes.TABLE}`" in in_browser.read_text(encoding="utf-8")


ODD = st.sampled_from(
    [int(code, 16) for row in LOOK_ALIKES_TABLE.split("\n") for code in row.split()[1:]]
    + [
        0x20,
        0xA0,
        0x3000,
        0x34F,
        0x3164,
        0xFE0F,
        0x17B5,
        0x180F,
        0x2800,
        0xE0123,
        0x301,
        0x6E,
        0x72,
    ]
).map(chr)


@given(st.text(st.characters() | ODD, max_size=6))
def test_both_see_names_alike(name):
    assert as_seen(name) == forms.as_seen(name)
    try:
        check_name("name", name)
        valid = True
    except ValueError:
        valid = False
    assert forms.is_name(name) == valid


def test_terms_that_the_writer_refuses_are_refused_by_the_verifier(originals):
    """Numbers at the edges of what terms may hold."""
    from verax.ledger.checks import check_terms
    from verax.mechanism import Terms
    from verax.verifier.terms import Terms as Read

    base = originals[0][0]["terms"]
    edges = [0, 1, -1, 0.5, 18, 19, 1e12, 1e30, math.inf, math.nan, True, "x", [], [1], [[1.0]]]
    names = ("values", "starts", "discount", "rounds", "kind", "fee", "outside", "scale", "quorum",
             "currency", "rule", "uncharged", "notice_rounds", "cosigned", "witnesses")  # fmt: skip
    accepted = 0
    for name in names:
        for edge in edges:
            text = "true" if edge is True else json.dumps(edge).replace("I", "i").replace("N", "n")
            text = text.replace("infinity", "inf").replace("nan", "nan")
            lines = base.split("\n")
            i = next(i for i, line in enumerate(lines) if line.startswith(f"{name} ="))
            j = i
            while lines[i].endswith("[") and not lines[j].startswith("]"):
                j += 1
            changed = "\n".join([*lines[:i], f"{name} = {text}", *lines[j + 1 :]])
            verdicts = []
            try:
                check_terms(Terms.from_toml(changed))
                verdicts.append(True)
            except ValueError:
                verdicts.append(False)
            try:
                Read(changed, 1, {})
                verdicts.append(True)
            except forms.WrongRecordError:
                verdicts.append(False)
            assert verdicts[0] == verdicts[1], (name, edge, verdicts)
            accepted += verdicts[0]
    assert accepted > 10
