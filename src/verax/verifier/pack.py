"""Pack the verifier into one file: `python -m verax.verifier.pack verify.py`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

_MAIN = """

if __name__ == "__main__":
    main()
"""
_PARTS = (
    "look_alikes",
    "forms",
    "signatures",
    "terms",
    "payments",
    "evidence",
    "spot",
    "checks",
    "chain",
    "mine",
    "sources",
    "command",
)


def packed() -> str:
    """The text of all parts, without the imports from each other."""
    folder = Path(__file__).parent
    title = (folder / "__init__.py").read_text(encoding="utf-8").partition('"""\n\n')[0]
    imports: set[str] = {"import sys"}
    bodies: list[str] = []
    for part in _PARTS:
        text = (folder / f"{part}.py").read_text(encoding="utf-8")
        text = text.partition("from __future__ import annotations\n")[2]
        text = re.sub(r"(if TYPE_CHECKING:\n    )?from verax\.verifier\.\w+ import .*\n", "", text)
        imports |= set(re.findall(r"^(?:import|from) .*$", text, re.MULTILINE))
        text = re.sub(r"^(?:import|from) .*\n", "", text, flags=re.MULTILINE)
        # Private names of different parts must not meet.
        private = set(re.findall(r"^(?:def |class )?(_\w+)\b(?=[(:= ])", text, re.MULTILINE))
        for name in private:
            text = re.sub(rf"(?<![\w.]){name}\b", f"_{part}{name}", text)
        bodies.append(f"# {part}\n\n{text.strip()}\n")
    head = f'{title}"""\n\nfrom __future__ import annotations\n\n' + "\n".join(sorted(imports))
    return "\n\n\n".join([head, *bodies]) + _MAIN


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(packed(), encoding="utf-8")
