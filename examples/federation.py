"""A federation on this machine: creates keys and certificates, starts and stops its processes.

    python federation.py up FOLDER --app APP [--simulation]
                                                    keys, certificates, SuperLink, SuperNodes
    python federation.py run FOLDER [KEY=VALUE …]   `flwr run` with the run's configuration
    python federation.py stop FOLDER NAME           end one process: superlink, node0, node1, …
    python federation.py start FOLDER NAME          start it again
    python federation.py down FOLDER                end everything that was started

FOLDER holds everything: keys, certificates, databases, logs, process ids and the book. All servers
listen only on 127.0.0.1, on free ports, and nothing connects to the internet.
"""

import argparse
import contextlib
import datetime
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

HOST = "127.0.0.1"
NAME = "example"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("command", choices=["up", "run", "stop", "start", "down"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("rest", nargs="*", help="KEY=VALUE for run, NAME for stop and start")
    parser.add_argument("--simulation", action="store_true", help="no SuperNodes: Ray instead")
    parser.add_argument("--app", type=Path, default=Path(), help="the app's folder, for up")
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--hard", action="store_true", help="stop by SIGKILL")
    given = parser.parse_args()
    folder = given.folder.resolve()
    match given.command:
        case "up":
            up(folder, given.app.resolve(), given.simulation, given.clients)
        case "run":
            sys.exit(run(folder, given.rest))
        case "stop":
            stop(folder, given.rest, hard=given.hard)
        case "start":
            for name in given.rest:
                start_again(folder, name)
        case "down":
            down(folder)


def up(folder: Path, app: Path, simulation: bool, clients: int) -> None:
    """Create what is missing and start everything."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = free_ports(clients + 1)
    settings = {
        "app": str(app),
        "simulation": simulation,
        "clients": clients,
        "superlink": taken[0],
        "nodes": taken[1:],
    }
    (folder / "settings.json").write_text(json.dumps(settings))
    connection = f'[superlink]\ndefault = "{NAME}"\n\n[superlink.{NAME}]\n'
    connection += f'address = "{HOST}:{taken[0]}"\n'
    if simulation:
        connection += "insecure = true\n"
    else:
        make_certificates(folder)
        for i in range(clients):
            make_key(folder / f"node{i}")
        connection += f'root-certificates = "{folder / "ca.crt"}"\n'
    (folder / "home").mkdir(exist_ok=True)
    (folder / "home" / "config.toml").write_text(connection)
    start(folder, "superlink")
    if simulation:
        return
    register = ["flwr", "supernode", "register"]
    with ThreadPoolExecutor(clients) as pool:
        for i in range(clients):
            key = str(folder / f"node{i}.pub")
            pool.submit(call, [*register, key, NAME, "--name", f"client-{i}"], folder)
    for i in range(clients):
        start(folder, f"node{i}")


def run(folder: Path, config: list[str]) -> int:
    """Run the app with its book in the folder."""
    settings = read(folder)
    values = [f'book="{folder / "book.db"}"', *map(quoted, config)]
    command = ["flwr", "run", settings["app"], NAME, "--stream", "--run-config", " ".join(values)]
    if settings["simulation"]:
        command += ["--federation-config", f"num-supernodes={settings['clients']}"]
    return subprocess.run(command, env=environment(folder), cwd=folder, check=False).returncode


def start_again(folder: Path, name: str) -> None:
    """Start one process; a SuperNode again and again until the SuperLink accepts it.

    After a crash the SuperLink treats a key as connected until the last heartbeat has expired.
    """
    log, until = folder / f"{name}.log", time.monotonic() + 180
    while True:
        before = log.stat().st_size if log.exists() else 0
        process = start(folder, name)
        while name != "superlink" and process.poll() is None:
            if b"SuperNode ID" in log.read_bytes()[before:]:
                return
            time.sleep(0.2)
        if process.poll() is None:
            return
        if time.monotonic() > until:
            raise SystemExit(f"{name} ends by itself; see {log}")
        time.sleep(5)


def start(folder: Path, name: str) -> subprocess.Popen:
    """Start one process and store its id."""
    settings = read(folder)
    if name == "superlink":
        command = superlink(folder, settings)
    else:
        command = supernode(folder, settings, int(name.removeprefix("node")))
    with (folder / f"{name}.log").open("ab") as log:
        process = subprocess.Popen(
            command,
            env=environment(folder),
            cwd=folder,
            stdout=log,
            stderr=log,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
    (folder / f"{name}.pid").write_text(str(process.pid))
    print(f"{name}: process {process.pid}")
    if name == "superlink":
        wait_for(settings["superlink"], process, folder / "superlink.log")
    return process


def superlink(folder: Path, settings: dict) -> list[str]:
    """The SuperLink's command; with a database it can be restarted."""
    command = ["flower-superlink", "--host", HOST, "--port", str(settings["superlink"])]
    command += ["--database", str(folder / "superlink.db")]
    command += ["--disable-runtime-dependency-installation"]
    if settings["simulation"]:
        return [*command, "--insecure", "--simulation"]
    tls = {"--ssl-ca-certfile": "ca.crt", "--ssl-certfile": "server.crt"}
    for option, file in (tls | {"--ssl-keyfile": "server.key"}).items():
        command += [option, str(folder / file)]
    return [*command, "--enable-supernode-auth"]


def supernode(folder: Path, settings: dict, i: int) -> list[str]:
    """A SuperNode's command; its key identifies it.

    A member that has the key `member0.pem`, … in the folder signs its updates with it; one that has
    `member0.json`, which `verax commit` wrote, is committed to it.
    """
    config = f"partition-id={i} num-partitions={settings['clients']}"
    for name, file in (("verax-key", f"member{i}.pem"), ("commitment", f"member{i}.json")):
        if (folder / file).exists():
            config += f" {name}='{folder / file}'"
    return [
        *("flower-supernode", "--superlink", f"{HOST}:{settings['superlink']}"),
        *("--root-certificates", str(folder / "ca.crt")),
        *("--auth-supernode-private-key", str(folder / f"node{i}")),
        *("--host", HOST, "--port", str(settings["nodes"][i])),
        *("--node-config", config),
    ]


def stop(folder: Path, names: list[str], *, hard: bool = False) -> None:
    """End processes by their ids, with their child processes."""
    for name in names:
        path = folder / f"{name}.pid"
        pid = int(path.read_text())
        end(pid, hard)
        path.unlink()
        print(f"{name}: process {pid} ended")


def down(folder: Path) -> None:
    """End all processes that `up` started."""
    names = sorted((path.stem for path in folder.glob("*.pid")), reverse=True)
    stop(folder, names)


def end(pid: int, hard: bool) -> None:
    """End a process group by SIGTERM; by SIGKILL if `hard`, or if it does not end in time."""
    for kind in (signal.SIGKILL,) if hard else (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(pid, kind)
        except ProcessLookupError:
            return
        until = time.monotonic() + 10
        while time.monotonic() < until:
            with contextlib.suppress(ChildProcessError):  # it is our own child only in `up`
                os.waitpid(pid, os.WNOHANG)
            try:
                os.killpg(pid, 0)
            except ProcessLookupError:
                return
            time.sleep(0.1)


def environment(folder: Path) -> dict[str, str]:
    """Environment variables: Flower's state in the folder, and no connection to the internet."""
    return os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_USAGE_STATS_ENABLED": "0",
        "JAX_PLATFORMS": "cpu",
    }


def call(command: list[str], folder: Path) -> None:
    """Run a command that must succeed."""
    done = subprocess.run(
        command, env=environment(folder), cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def quoted(pair: str) -> str:
    """KEY=VALUE as TOML; a value that is neither a number nor true or false becomes a string."""
    key, _, value = pair.partition("=")
    try:
        float(value)
        return pair
    except ValueError:
        return pair if value in ("true", "false") else f"{key}='{value}'"


def read(folder: Path) -> dict:
    """The settings that `up` wrote."""
    return json.loads((folder / "settings.json").read_text())


def free_ports(count: int) -> list[int]:
    """Ports that no process listens on."""
    servers = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in servers]
    for server in servers:
        server.close()
    return ports


def wait_for(port: int, process: subprocess.Popen, log: Path) -> None:
    """Wait until a process listens on a port."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        if process.poll() is not None:
            raise SystemExit(f"the SuperLink ended by itself:\n{log.read_text()[-2000:]}")
        try:
            socket.create_connection((HOST, port), timeout=1).close()
            return
        except OSError:
            time.sleep(0.1)
    raise SystemExit(f"no process listens on port {port}; see {log}")


def make_key(path: Path) -> None:
    """Create a SuperNode's key pair, as `ssh-keygen -t ecdsa -b 384` does."""
    if path.exists():
        return
    key = ec.generate_private_key(ec.SECP384R1())
    private = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.OpenSSH,
        serialization.NoEncryption(),
    )
    write_private(path, private)
    public = key.public_key().public_bytes(
        serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
    )
    path.with_suffix(".pub").write_bytes(public + b"\n")


def make_certificates(folder: Path) -> None:
    """Create a certificate authority and the SuperLink's certificate, valid for one year."""
    if (folder / "server.crt").exists():
        return
    authority = ec.generate_private_key(ec.SECP384R1())
    own = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "example authority")])
    ca = certificate(own, own, authority, authority, ca=True)
    key = ec.generate_private_key(ec.SECP384R1())
    host = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, HOST)])
    server = certificate(host, own, key, authority, ca=False)
    (folder / "ca.crt").write_bytes(ca.public_bytes(serialization.Encoding.PEM))
    (folder / "server.crt").write_bytes(server.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    write_private(folder / "server.key", private)


def certificate(subject, issuer, key, signer, *, ca: bool) -> x509.Certificate:
    """A certificate of `subject`'s key, signed by the issuer's."""
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder(issuer, subject, key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(minutes=5))
        .not_valid_after(now + datetime.timedelta(days=365))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), False)
    )
    if not ca:
        names = [x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    from_signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    usage = x509.KeyUsage(not ca, False, False, False, False, ca, ca, False, False)
    builder = builder.add_extension(from_signer, False).add_extension(usage, critical=True)
    return builder.sign(signer, hashes.SHA256())


def write_private(path: Path, content: bytes) -> None:
    """Write a file that only its owner may read."""
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)


if __name__ == "__main__":
    main()
