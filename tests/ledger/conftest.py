"""Books for the tests: a SQLite file, or a database on the tests' own PostgreSQL server."""

import shutil

import psycopg
import pytest
from books import fill

from verax.ledger import Book
from verax.mechanism import Price, Terms


@pytest.fixture(scope="session")
def postgres_books(postgres):
    """URLs of books that tests use one after the other: creating a database takes long."""
    for setting in ("fsync", "full_page_writes"):
        postgres.admin.execute(f"ALTER SYSTEM SET {setting} = off")
    postgres.admin.execute("SELECT pg_reload_conf()")
    return []


@pytest.fixture
def new_postgres(postgres, postgres_books):
    """A function that returns the URL of an empty book, of another one at each call."""
    used = iter(range(100))

    def make():
        k = next(used)
        if k == len(postgres_books):
            postgres_books.append(postgres())
            Book.create(postgres_books[k]).close()
        with psycopg.connect(postgres_books[k].replace("+psycopg", "")) as connection:
            tables = "verax.federation, verax.account, verax.record, verax.entry"
            connection.execute(f"TRUNCATE {tables} RESTART IDENTITY")
        return postgres_books[k]

    return make


@pytest.fixture
def path(tmp_path):
    """An empty book in SQLite."""
    path = str(tmp_path / "book.db")
    Book.create(path).close()
    return path


@pytest.fixture(params=["sqlite", "postgres"])
def url(request):
    """An empty book, on both databases."""
    if request.param == "sqlite":
        return request.getfixturevalue("path")
    return request.getfixturevalue("new_postgres")()


@pytest.fixture
def terms():
    return Terms(Price.constant(0.5), currency="EUR", scale=2)


@pytest.fixture(scope="session")
def filled(tmp_path_factory):
    """A book with a bit of everything, to be copied."""
    path = tmp_path_factory.mktemp("filled") / "book.db"
    with Book.create(path) as book:
        fill(book)
    return path


@pytest.fixture
def small(filled, tmp_path):
    return str(shutil.copy(filled, tmp_path / "small.db"))
