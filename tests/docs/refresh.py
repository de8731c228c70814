"""
`make readme`: write the outputs in the README and the documents as the commands print them now.

Look at the difference before committing: a number that moved is named in CHANGELOG.md under "Estimates".
"""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.docs.accuracy import with_accuracy  # noqa: E402  (paths come first)
from tests.docs.console import running  # noqa: E402  (paths come first)
from tests.docs.law_page import laws_page, with_method_table  # noqa: E402  (paths come first)
from tests.docs.picture import picture  # noqa: E402  (paths come first)


def main() -> int:
    readme, method = ROOT / "README.md", ROOT / "docs" / "method.md"
    accuracy = (ROOT / "docs" / "accuracy.md").read_text(encoding="utf-8")
    readme.write_text(with_accuracy(readme.read_text(encoding="utf-8"), accuracy), encoding="utf-8")
    method.write_text(with_method_table(method.read_text(encoding="utf-8")), encoding="utf-8")
    (ROOT / "docs" / "laws.md").write_text(laws_page(), encoding="utf-8")
    (ROOT / "docs" / "memory.svg").write_text(picture(), encoding="utf-8")
    with running(ROOT) as runner:
        for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
            before = path.read_text(encoding="utf-8")
            after = runner.renewed(before)
            if after != before:
                path.write_text(after, encoding="utf-8")
                print(f"{path.relative_to(ROOT)} changed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
