"""What members gain that optimise their misreports, alone, in pairs or all at once."""

from verax.audit.search.effort import search_rounds
from verax.audit.search.responses import FoundResponse
from verax.audit.search.results import SearchResults, searched

__all__ = ["FoundResponse", "SearchResults", "search_rounds", "searched"]
