"""The harm rule: runs, payments, judgement and search, for `benchmarks/harm_rule.py`."""
