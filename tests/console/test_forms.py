"""The two forms that write, as an operator sends them."""

import pytest

from verax.ledger import Book, Report
from verax.verifier import verify

from .conftest import CLINICS, fill, make_tokens, served


@pytest.fixture(params=["SQLite", "PostgreSQL"])
def own(request, tmp_path):
    """A console of one test alone, on either database."""
    is_file = request.param == "SQLite"
    path = tmp_path / "book.db" if is_file else request.getfixturevalue("postgres")()
    with served(fill(path), tmp_path / "console") as found:
        make_tokens(found)
        yield found


def test_a_deposit_is_booked_once_however_often_its_form_is_sent(own):
    with own.signed_in("operator") as (client, key):
        data = {"form_key": key, "member": "a", "amount": " 12.50", "reason": "x", "reference": "r"}
        for _ in range(2):
            done = client.post(f"/f/{CLINICS}/deposit", data=data)
            assert done.status_code == 303
            assert "Deposit%20booked%20as%20record%2010" in done.headers["location"]
        assert "Deposit booked as record 10." in client.get(done.headers["location"]).text
    with Book.open(own.path) as book:
        last = list(book.records("clinics", after=9))
        assert [record.kind for record in last] == ["deposit"]
        assert last[0].entries == [(0, 1250), (1, -1250)]
    assert verify(own.path, federation="clinics").ok


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"amount": "x"}, "must be a number such as 12.50"),
        ({"amount": "1.005"}, "2 decimal places"),
        ({"amount": "1e99"}, "63 bits"),
        ({"amount": "nan"}, "must be a number"),
        ({"amount": "0"}, "deposit"),
        ({"member": "nobody"}, "is not a member"),
        ({"member": "escrow"}, "not a member"),
        ({"reference": ""}, "reference"),
    ],
)
def test_a_wrong_deposit_books_nothing_and_says_why(at, changed, words):
    with at.signed_in("operator") as (client, key):
        data = {"form_key": key, "member": "a", "amount": "1", "reference": "wrong-one"} | changed
        answer = client.post(f"/f/{CLINICS}/deposit", data=data)
    assert answer.status_code == 422
    assert "Nothing was booked" in answer.text
    assert words in answer.text


def settlement_form(client, key):
    page = client.get(f"/f/{CLINICS}/settlement").text

    def value(name):
        return page.split(f'name="{name}" value="')[1].split('"')[0]

    return {"form_key": key, "record": value("record"), "reference": value("reference")}


def test_a_settlement_needs_the_name_typed(own):
    with own.signed_in("operator") as (client, key):
        form = settlement_form(client, key)
        for typed in ("", "Clinics", "yes"):
            answer = client.post(f"/f/{CLINICS}/settlement", data=form | {"confirm": typed})
            assert answer.status_code == 422
        with Book.open(own.path) as book:
            assert any(book.balances("clinics").values())
        done = client.post(f"/f/{CLINICS}/settlement", data=form | {"confirm": "clinics"})
        assert done.status_code == 303
        assert "Nothing to settle" in client.get(f"/f/{CLINICS}/settlement").text
    with Book.open(own.path) as book:
        assert not any(book.balances("clinics").values())
    assert verify(own.path, federation="clinics").ok


def test_a_settlement_is_refused_if_the_book_grew_meanwhile(own):
    with own.signed_in("operator") as (client, key):
        form = settlement_form(client, key)
        with Book.open(own.path) as book:
            book.post("clinics", "spring", 4, [Report(m, statistic=1.0) for m in "abc"])
        answer = client.post(f"/f/{CLINICS}/settlement", data=form | {"confirm": "clinics"})
        assert answer.status_code == 422
        assert "compute it again" in answer.text
        odd = client.post(
            f"/f/{CLINICS}/settlement", data=form | {"confirm": "clinics", "record": "x"}
        )
        assert odd.status_code == 422


def test_a_member_cannot_send_the_forms(own):
    with own.signed_in("a") as (client, key):
        for path in ("deposit", "settlement"):
            data = {"form_key": key, "confirm": "clinics", "member": "a", "amount": "-100"}
            assert client.post(f"/f/{CLINICS}/{path}", data=data).status_code == 403
