"""Names that mean the same member: `client 0`, `client-0`, `client_0` and `0`."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence


def canonical_name(name: str) -> str:
    """The same text for names that differ only in separators or in a leading "client".

    Example:
        >>> canonical_name("client 0"), canonical_name("client_0"), canonical_name("north west")
        ('0', '0', 'north-west')
    """
    joined = re.sub(r"[\s_-]+", "-", name.strip())
    return re.sub(r"^client-?(?=\d+$)", "", joined)


def match_names(given: Sequence[str], listed: Sequence[str]) -> dict[str, str]:
    """Listed names by given name, where one of each alone has the same canonical form.

    Example:
        >>> match_names(["client-0", "1", "2"], ["client 0", "client 1", "client_1"])
        {'client-0': 'client 0'}
    """
    forms = Counter(map(canonical_name, given)), Counter(map(canonical_name, listed))
    by_form = {canonical_name(name): name for name in listed}
    return {
        name: by_form[form]
        for name in given
        if forms[0][form := canonical_name(name)] == forms[1][form] == 1
    }
