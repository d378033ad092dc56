"""The layers of the package: who may import whom, and that no class has the name of another."""

import ast
from collections import Counter
from pathlib import Path

import verax

ROOT = Path(verax.__file__).parent

#: What each package imports of the others. A new dependency is a decision, and is written down here
#: and in CONTRIBUTING.md.
LAYERS = {
    "verifier": set(),
    "mechanism": set(),
    "game": {"mechanism"},
    "learning": {"mechanism", "game"},
    "tasks": {"game", "learning"},
    "audit": {"mechanism", "game", "learning", "tasks"},
    "ledger": {"mechanism", "verifier"},
    "flower": {"mechanism", "game", "ledger", "apps"},
    "apps": {"mechanism", "game", "learning", "audit", "flower"},
    "spot": {"mechanism", "ledger", "flower", "apps"},
    "console": {"mechanism", "ledger", "flower"},
}

#: Imported on first use only: `verax.flower` offers the rehearsal of `apps`.
LAZY = {("flower", "apps")}


def imports_of(nodes):
    """The packages of Verax that some statements import."""
    for node in nodes:
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        else:
            continue
        yield from (name.split(".")[1] for name in names if name.startswith("verax."))


def graph(*, when_loaded):
    """What each package imports: only when it is loaded, or also within functions."""
    found = {package: set() for package in LAYERS}
    for package, names in found.items():
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            names.update(imports_of(tree.body if when_loaded else ast.walk(tree)))
    return {package: (names & set(LAYERS)) - {package} for package, names in found.items()}


def test_packages_import_only_what_the_layers_allow():
    assert graph(when_loaded=False) == LAYERS


def test_no_package_imports_itself_through_others():
    left = graph(when_loaded=True)
    for package, other in LAZY:
        left[package].discard(other)
    while left:
        free = {package for package, names in left.items() if not names & set(left)}
        assert free, f"a cycle among {sorted(left)}"
        left = {package: names for package, names in left.items() if package not in free}


def test_the_mechanism_needs_no_jax_and_the_verifier_nothing_but_python():
    for package, foreign in (("mechanism", {"jax", "flwr"}), ("verifier", {"numpy", "jax"})):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                names += [a.name for a in node.names] if isinstance(node, ast.Import) else []
                assert not {name.split(".")[0] for name in names} & foreign, path


def test_no_two_classes_have_the_same_name():
    """The verifier aside, which has its own words for what the ledger writes."""
    names = Counter(
        node.name
        for path in ROOT.rglob("*.py")
        if "verifier" not in path.parts
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in names.items() if count > 1] == []
