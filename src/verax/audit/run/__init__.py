"""Running a plan: which runs there are, who computes them, and what is recorded."""
