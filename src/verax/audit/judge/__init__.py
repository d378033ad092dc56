"""Judging the record of an audit: evidence, prices, windows, and the terms to propose."""

from verax.audit.judge.judgement import Judgement, judge
from verax.audit.judge.propose import propose, terms_toml

__all__ = ["Judgement", "judge", "propose", "terms_toml"]
