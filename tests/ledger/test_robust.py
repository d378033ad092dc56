"""What goes wrong around a book: clear words, and nothing lost."""

import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from contextlib import closing
from pathlib import Path

import pytest
from books import norms
from sqlalchemy import event

from verax.ledger import Book, BookError, BookUnavailableError
from verax.ledger.export import backup_book
from verax.mechanism import Price, Terms
from verax.verifier import verify


@pytest.fixture
def book(path, terms):
    with Book.open(path, wait=0.2) as opened:
        opened.create_federation("clinics", terms)
        opened.post("clinics", "first", 1, norms(4, 1, 1))
        yield opened


def test_a_full_disk(book, path):
    with book.engine.connect() as connection:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar()
    book.close()

    @event.listens_for(book.engine, "connect")  # all are made anew
    def _(connection, _):
        connection.execute(f"PRAGMA max_page_count = {pages + 1}")

    def post_until_full():
        for t in range(2, 500):
            book.post("clinics", "first", t, norms(*range(1, 20)))

    with pytest.raises(BookUnavailableError, match="disk is full; free some space"):
        post_until_full()
    done = book.last_round("clinics", "first")
    assert 1 <= done < 400
    assert verify(path).rounds == done
    assert verify(path).ok
    with Book.open(path) as again:
        assert again.post("clinics", "first", done + 1, norms(1, 2)).posted


def test_a_disk_that_refuses_to_write(path, terms):
    """The kernel refuses to let the file grow, as at a quota."""
    with Book.open(path) as book:
        book.create_federation("clinics", terms)
        book.post("clinics", "first", 1, norms(4, 1, 1))
    code = (
        "import sys, resource; from verax.ledger import Book, Report\n"
        "with Book.open(sys.argv[1]) as book:\n"
        "    resource.setrlimit(resource.RLIMIT_FSIZE, (90_000, 90_000))\n"
        "    for t in range(2, 999):\n"
        "        book.post('clinics', 'first', t, [Report('a', statistic=1.0)])\n"
        "        print(t, flush=True)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, path], capture_output=True, text=True, check=False
    )
    assert "BookUnavailableError" in done.stderr
    assert "full" in done.stderr.splitlines()[-1]
    last = int(done.stdout.split()[-1])
    assert verify(path).ok
    with Book.open(path) as book:
        assert book.last_round("clinics", "first") == last


ON_A_SMALL_VOLUME = """
import sys
from pathlib import Path
from verax.ledger import Book, BookUnavailableError, Report
from verax.verifier import verify
from verax.mechanism import Price, Terms

volume = Path(sys.argv[1])
(volume / "ballast").write_bytes(bytes(200_000))
path, last = volume / "book.db", 0
with Book.create(path) as book:
    book.create_federation("clinics", Terms(Price.constant(0.5)))
    try:
        for t in range(1, 9999):
            reports = [Report(f"m{i}", statistic=float(i)) for i in range(50)]
            book.post("clinics", "first", t, reports)
            last = t
    except BookUnavailableError as error:
        print(error)
assert last > 10
assert (verify(path).ok, verify(path).rounds) == (True, last)
(volume / "ballast").unlink()
with Book.open(path) as book:
    assert book.post("clinics", "first", last + 1, [Report("m1", statistic=1.0)]).posted
assert (verify(path).ok, verify(path).rounds) == (True, last + 1)
print("all is well")
"""


def test_a_full_volume(tmp_path):
    """A volume of one megabyte, mounted for this process alone; freed, the book goes on."""
    mount = 'mount -t tmpfs -o size=1m none "$0" && echo mounted && exec "$@"'
    alone = ["unshare", "--map-root-user", "--mount", "sh", "-c", mount, str(tmp_path)]
    try:
        done = subprocess.run(
            [*alone, sys.executable, "-c", ON_A_SMALL_VOLUME, str(tmp_path)],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        pytest.skip("needs unshare: apt-get install util-linux")
    if not done.stdout.startswith("mounted"):
        pytest.skip(f"this machine lets nobody mount a volume of its own ({done.stderr.strip()})")
    assert done.returncode == 0, done.stderr
    assert "disk is full; free some space" in done.stdout
    assert "all is well" in done.stdout


def test_a_read_only_file(book, path):
    with Book.open(path, read_only=True) as reader:
        assert reader.balances("clinics")["a"] == 150
        with pytest.raises(BookUnavailableError, match="read-only"):
            reader.post("clinics", "first", 2, norms(1, 2))
    assert book.post("clinics", "first", 2, norms(1, 2)).posted


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become somebody else")
def test_a_file_and_folder_without_the_right_to_write(book, path, tmp_path):
    book.close()
    folder = Path(tempfile.gettempdir()) / f"verax-ro-{os.getpid()}"
    folder.mkdir(mode=0o755)
    try:
        copy = shutil.copy(path, folder / "book.db")
        copy.chmod(0o444)
        assert verify(copy).ok  # and all that is needed has been imported
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore"
            )  # JAX, if loaded, has threads; the child does not use it
            pid = os.fork()
        if pid == 0:  # nobody, in a child
            code = 1
            try:
                os.setuid(65534)
                with Book.open(copy, read_only=True) as reader:
                    assert reader.balances("clinics")["a"] == 150
                assert verify(copy).ok
                try:
                    with Book.open(copy) as writer:
                        writer.post("clinics", "first", 2, norms(1, 2))
                except BookUnavailableError as error:
                    code = 0 if "read-only" in str(error) or "opened" in str(error) else 2
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    finally:
        shutil.rmtree(folder)


def test_a_locked_database(book, path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(BookUnavailableError, match="locked by another writer"):
        book.post("clinics", "first", 2, norms(1, 2))
    assert book.balances("clinics")["a"] == 150  # readers are not kept waiting
    other.execute("ROLLBACK")
    other.close()
    assert book.post("clinics", "first", 2, norms(1, 2)).posted


def test_a_failed_write_leaves_nothing_and_a_closed_book_holds_nothing(book, path):
    with book.engine.connect() as connection:
        connection.exec_driver_sql(
            "CREATE TRIGGER last BEFORE UPDATE ON federation BEGIN SELECT RAISE(ABORT, 'no'); END"
        )
        connection.commit()
    with pytest.raises(BookUnavailableError, match="the book failed: no"):
        book.post("clinics", "first", 2, norms(1, 2))
    assert book.last_round("clinics", "first") == 1
    with book.engine.connect() as connection:
        connection.exec_driver_sql("DROP TRIGGER last")
        connection.commit()
    assert book.post("clinics", "first", 2, norms(1, 2)).posted
    assert Path(path + "-wal").exists()
    book.close()  # SQLite clears its log away with the last connection
    assert not Path(path + "-wal").exists()
    assert verify(path).rounds == 2


def test_what_was_stored_otherwise_than_written_is_not_booked(book, path):
    """A trigger that somebody adds while the book is open changes what is inserted."""
    for n, change in enumerate((
        "AFTER INSERT ON entry BEGIN UPDATE entry SET amount = amount + 1; END",
        "AFTER INSERT ON entry BEGIN DELETE FROM entry WHERE account = 1; END",
        "AFTER INSERT ON record BEGIN UPDATE record SET content = x'00'; END",
        "AFTER UPDATE ON federation BEGIN UPDATE federation SET hash = 'x'; END",
    )):  # fmt: skip
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute(f"CREATE TRIGGER t{n} {change}")
        with pytest.raises(BookError, match="did not store"):
            book.post("clinics", "first", 2, norms(1, 2))
        with pytest.raises(BookError, match=f"'t{n}'"):
            Book.open(path)
        with closing(sqlite3.connect(path)) as raw, raw:
            raw.execute(f"DROP TRIGGER t{n}")
    assert book.post("clinics", "first", 2, norms(1, 2)).posted
    assert verify(path).ok


def test_a_backup_of_a_live_book_has_what_is_only_in_the_log(book, path, tmp_path):
    assert Path(path + "-wal").stat().st_size > 0
    backup_book(book, tmp_path / "backup.db")
    assert verify(tmp_path / "backup.db").hash == book.head("clinics")[1]
    book.post("clinics", "first", 2, norms(1, 2))
    assert verify(tmp_path / "backup.db").rounds == 1


def test_a_backup_of_a_postgres_book_is_a_folder_of_exports(new_postgres, terms, tmp_path):
    with Book.open(new_postgres()) as book:
        for name in ("clinics", "../banks"):
            book.create_federation(name, terms)
            book.post(name, "first", 1, norms(1, 2))
        backup_book(book, tmp_path / "backup")
    files = sorted((tmp_path / "backup").iterdir())
    assert [verify(file).federation for file in files] == ["../banks", "clinics"]


def test_a_failed_commit_leaves_nothing_and_holds_no_lock(book, path, monkeypatch):
    def refuse(connection):
        raise sqlite3.OperationalError("the disk reports an error")

    with monkeypatch.context() as patch:
        patch.setattr(book.engine.dialect, "do_commit", refuse)
        with pytest.raises(BookUnavailableError, match="the disk reports an error"):
            book.post("clinics", "first", 2, norms(1, 2))
    assert book.last_round("clinics", "first") == 1
    with Book.open(path, wait=0.2) as other:
        assert other.post("clinics", "first", 2, norms(1, 2)).posted
    assert book.post("clinics", "first", 3, norms(1, 2)).posted


def test_a_lock_that_goes_away_in_time(path, terms):
    with Book.open(path, wait=20) as book:
        book.create_federation("clinics", terms)
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        threading.Timer(0.4, lambda: other.execute("ROLLBACK")).start()
        begin = time.monotonic()
        assert book.post("clinics", "first", 1, norms(1, 2)).posted
        assert time.monotonic() - begin > 0.2
        other.close()


def test_a_locked_row_in_postgres(new_postgres, terms):
    import psycopg

    url = new_postgres()
    with Book.open(url, wait=0.3) as book:
        book.create_federation("clinics", terms)
        with psycopg.connect(url.replace("+psycopg", "")) as other:
            other.execute("SELECT * FROM verax.federation FOR UPDATE")
            with pytest.raises(BookUnavailableError, match="locked by another writer"):
                book.post("clinics", "first", 1, norms(1, 2))
        assert book.post("clinics", "first", 1, norms(1, 2)).posted


def drop_all(postgres, url):
    from sqlalchemy import make_url

    postgres.admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s",
        (make_url(url).database,),
    )


def test_a_dropped_connection_is_made_anew(postgres, new_postgres, terms):
    url = new_postgres()
    with Book.open(url) as book:
        book.create_federation("clinics", terms)
        for t in range(1, 4):
            drop_all(postgres, url)
            assert book.post("clinics", "first", t, norms(1, 2)).posted
    assert verify(url).rounds == 3


@pytest.mark.parametrize(
    "at", ["INSERT INTO verax.record", "INSERT INTO verax.entry", "UPDATE verax.federation"]
)
def test_a_connection_dropped_in_the_middle(postgres, new_postgres, terms, at):
    url = new_postgres()
    with Book.open(url) as book:
        book.create_federation("clinics", terms)
        book.post("clinics", "first", 1, norms(1, 2))
        drops = [1]

        @event.listens_for(book.engine, "before_cursor_execute")
        def _(connection, cursor, statement, *_):
            if statement.startswith(at) and drops:
                drops.pop()
                drop_all(postgres, url)

        assert book.post("clinics", "first", 2, norms(1, 2)).posted
        drops.append(1)
        book.deposit("clinics", "a", 7, reference="d")
        assert not drops
        assert book.balances("clinics")["escrow"] == 7  # once, not twice
    assert verify(url).ok


def test_a_commit_whose_answer_is_lost_books_once(new_postgres, terms, monkeypatch):
    import psycopg

    url = new_postgres()
    with Book.open(url) as book:
        book.create_federation("clinics", terms)
        book.post("clinics", "first", 1, norms(1, 2))
        commit, drops = book.engine.dialect.do_commit, [1]

        def deaf(connection):
            commit(connection)
            if drops:
                drops.pop()
                connection.driver_connection.close()
                raise psycopg.OperationalError("server closed the connection unexpectedly")

        monkeypatch.setattr(book.engine.dialect, "do_commit", deaf)
        assert not book.deposit("clinics", "a", 7, reference="d").posted
        assert book.balances("clinics")["escrow"] == 7
        drops.append(1)
        receipt = book.post("clinics", "first", 2, norms(1, 2))
        assert receipt.amounts == {"a": -50, "b": 50}
    assert verify(url).rounds == 2


def test_no_server(tmp_path):
    with pytest.raises(BookUnavailableError, match="cannot be reached"):
        Book.open(f"postgresql://nobody@/none?host={tmp_path}", wait=1)


def test_a_database_that_does_not_exist(new_postgres):
    from sqlalchemy import make_url

    url = make_url(new_postgres()).set(database="nowhere").render_as_string(hide_password=False)
    with pytest.raises(BookUnavailableError, match="does not exist"):
        Book.open(url)


@pytest.mark.parametrize("version", [9999, 0])
def test_another_schema(book, path, version):
    book.close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE verax_schema SET number = ?", (version,))
    raw.close()
    for enter in (Book.open, Book.create):
        with pytest.raises(BookError, match=f"schema {version}, .* use the version of Verax"):
            enter(path)
    with pytest.raises(ValueError, match=f"schema {version}"):
        verify(path)


def test_damaged_files_are_never_taken_for_good(book, path, tmp_path):
    for t in range(2, 30):
        book.post("clinics", "first", t, norms(*range(1, 20)))
    book.close()
    good = Path(path).read_bytes()
    found = 0
    rng = random.Random(11)
    used = [i for i in range(100, len(good)) if good[i]]
    for offset in rng.sample(used, 30):
        damaged = tmp_path / "damaged.db"
        damaged.write_bytes(good[:offset] + bytes([good[offset] ^ 0x55]) + good[offset + 1 :])
        try:
            ok = verify(damaged).ok
            with Book.open(damaged, read_only=True) as opened:
                opened.balances("clinics")
        except (BookError, OSError, ValueError):
            found += 1
            continue
        found += not ok
        if ok:  # unused space: everything is still there
            with Book.open(damaged, read_only=True) as opened:
                assert opened.last_round("clinics", "first") == 29
    assert found >= 25


def test_a_file_cut_in_half(book, path, tmp_path):
    for t in range(2, 30):
        book.post("clinics", "first", t, norms(*range(1, 20)))
    book.close()
    half = tmp_path / "half.db"
    half.write_bytes(Path(path).read_bytes()[: Path(path).stat().st_size // 2])
    with pytest.raises(OSError, match=r"damaged|cannot be read|malformed"):
        assert verify(half).ok


@pytest.mark.parametrize(
    ("content", "words"),
    [(b"not a database at all, but long enough to look at" * 50, "not a SQLite"), (b"", "no book")],
)
def test_not_a_book(tmp_path, content, words):
    path = tmp_path / "x.db"
    path.write_bytes(content)
    with pytest.raises((BookError, BookUnavailableError), match=words):
        Book.open(path)
    if content:
        with pytest.raises(BookUnavailableError, match=words):
            Book.create(path)
        assert path.read_bytes() == content


def test_somebody_elses_database_is_left_alone(tmp_path):
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as raw:
        raw.execute("CREATE TABLE patients (name TEXT)")
    raw.close()
    with pytest.raises(BookError, match="other tables"):
        Book.create(path)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nowhere/book.db", "create the folder first"),
        ("missing.db", "verax ledger create"),
        (".", "is a folder"),
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("mysql://x/y", "SQLite or PostgreSQL"),
        ("://", "URL"),
    ],
)
def test_places_where_no_book_is(url, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((BookError, BookUnavailableError), match=words):
        Book.open(url)
    assert list(tmp_path.iterdir()) == []


def test_secrets_stay_out_of_errors(tmp_path):
    with pytest.raises(BookUnavailableError) as caught:
        Book.open(f"postgresql://me:hunter2@/none?host={tmp_path}", wait=1)
    assert "hunter2" not in str(caught.value)


def test_a_round_past_the_terms(path):
    with Book.open(path) as book:
        book.create_federation("short", Terms(Price.discounted(0.5, 0.1, 3)))
        book.post("short", "r", 3, norms(1, 2))
        with pytest.raises(ValueError, match="outside the terms' rounds"):
            book.post("short", "r", 4, norms(1, 2))
    assert verify(path).ok
