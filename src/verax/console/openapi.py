"""The OpenAPI document of `/api/v1`, made from the table of routes."""

from __future__ import annotations

import re
from typing import Any

from starlette.responses import JSONResponse, Response

from verax import __version__
from verax.console.call import Call, Need

_PARAMETERS: dict[str, dict[str, Any]] = {
    "federation": {"schema": {"type": "string"}, "description": "A federation's id."},
    "account": {"schema": {"type": "integer"}, "description": "A member's account number."},
}
_QUERIES: dict[str, tuple[str, ...]] = {
    "rounds": ("before", "limit", "run"),
    "norms": ("limit",),
    "balances": ("search",),
    "statement": ("page",),
}
_QUERY_WORDS = {
    "before": ("integer", "Only rounds before this record."),
    "limit": ("integer", "How many."),
    "run": ("string", "Only rounds of this run."),
    "search": ("string", "A part of a member's id or label, taken literally."),
    "page": ("integer", "Which page, from 1 on."),
}


def document(call: Call) -> Response:
    """The document; it says nothing about the book."""
    return JSONResponse(describe())


def describe() -> dict[str, Any]:
    """The document as a table."""
    from verax.console.app import ROUTES

    paths: dict[str, Any] = {}
    for route in ROUTES:
        if not route.path.startswith("/api/v1/"):
            continue
        path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
        words = (route.endpoint.__doc__ or "").strip().partition("\n")[0]
        operation: dict[str, Any] = {
            "summary": words,
            "description": f"Needs {route.need.value}.",
            "operationId": route.endpoint.__name__,
            "parameters": _parameters(path),
            "responses": {"200": {"description": "As the summary says."}},
        }
        if route.need is Need.NOTHING:
            operation["security"] = []
        else:
            operation["responses"] |= {
                "401": {"description": "No valid access token."},
                "403": {"description": "The token does not open this."},
            }
        paths[path] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Verax console",
            "version": __version__,
            "description": "Amounts are whole minor units; positive amounts are owed by the "
            "member. What a token does not open is null or left out.",
        },
        "security": [{"token": []}],
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "paths": paths,
    }


def _parameters(path: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True} | _PARAMETERS[name]
        for name in re.findall(r"\{(\w+)\}", path)
    ]
    for name in _QUERIES.get(path.rpartition("/")[2], ()):
        kind, words = _QUERY_WORDS[name]
        found.append({"name": name, "in": "query", "schema": {"type": kind}, "description": words})
    return found
