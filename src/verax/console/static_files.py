"""The few static files, by name: what is not in the list does not exist."""

from __future__ import annotations

from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.responses import Response

from verax.console.call import Call

_KINDS = {"css": "text/css", "js": "text/javascript", "svg": "image/svg+xml", "txt": "text/plain"}
_VERIFIER = files("verax.console").joinpath("static", "verify")

#: The package and the path of every file.
_FILES = {
    "console.css": ("verax.console", "static/console.css"),
    "console.js": ("verax.console", "static/console.js"),
    "checker.js": ("verax.console", "static/checker.js"),
    "htmx.min.js": ("verax.console", "static/htmx.min.js"),
    "htmx.LICENSE.txt": ("verax.console", "static/htmx.LICENSE.txt"),
    "charts.js": ("verax.audit.show", "charts.js"),
    "charts.css": ("verax.audit.show", "charts.css"),
    "icon.svg": ("verax.console", "static/icon.svg"),
    **{
        f"verify/{file.name}": ("verax.console", f"static/verify/{file.name}")
        for file in _VERIFIER.iterdir()
    },
}


def static(call: Call) -> Response:
    """A file of the list."""
    found = _FILES.get(call.request.path_params["name"])
    if found is None:
        raise HTTPException(404, "There is no such file.")
    return _file(*found)


def icon(call: Call) -> Response:
    """The icon, where browsers look for it when a page is not ours (JSON, a download)."""
    return _file(*_FILES["icon.svg"])


def _file(package: str, path: str) -> Response:
    content = files(package).joinpath(path).read_bytes()
    kind = _KINDS[path.rpartition(".")[2]]
    return Response(content, media_type=kind, headers={"cache-control": "max-age=300"})
