"""An audit in a cell of a notebook: the verdict, and the strongest misreport of each kind.

The fragment loads nothing, runs nothing and brings no style sheet, so that it looks like the
notebook that it stands in. All texts of the audit are escaped: members choose their names.
"""

from __future__ import annotations

from typing import Any

import jinja2

from verax.audit.show.report import percent

_TEMPLATE = """\
<div class="verax-audit">
{% for sentence in verdict %}
<p>{{ sentence }}</p>
{% endfor %}
{% if tried %}
<table>
<caption>At the proposed price, as shares of honest rewards (means over the judging seeds)</caption>
<thead><tr><th>tried</th><th>strongest</th><th>worst gain</th><th>effect on others</th></tr></thead>
<tbody>
{% for row in tried %}
<tr><th scope="row">{{ row.kind }} ({{ row.tried }})</th><td>{{ row.label }}, by {{ row.name }}</td>
<td>{{ row.gain_share.mean | percent }}</td>
<td>{{ row.others_share.mean | percent }}{{ ", costs them" if row.harmful }}</td></tr>
{% endfor %}
</tbody>
</table>
{% endif %}
</div>
"""


def notebook_html(summary: dict[str, Any]) -> str:
    """The audit as a fragment of HTML.

    Args:
        summary: the audit as plain JSON values.
    """
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    environment.filters["percent"] = percent
    return environment.from_string(_TEMPLATE).render(
        verdict=summary["verdict"], tried=summary["tried"]
    )
