"""The best response, searched: what a member that optimises its misreport gains at a price."""

from verax.audit.search.kept import responses
from verax.audit.search.search import FoundResponse, search, search_rounds

__all__ = ["FoundResponse", "responses", "search", "search_rounds"]
