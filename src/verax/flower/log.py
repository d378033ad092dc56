"""The log of the payment layer, a child of Flower's; what members wrote is escaped in it."""

from __future__ import annotations

import logging

from verax.text import printable


def _escape(record: logging.LogRecord) -> bool:
    record.msg, record.args = printable(record.getMessage(), keep="\t"), None
    return True


log = logging.getLogger("flwr.verax")
log.addFilter(_escape)
