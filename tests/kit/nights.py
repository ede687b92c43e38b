"""When each step of `make test-nightly` last passed, as the table in tests/README.md says."""

from __future__ import annotations

import datetime
import re
from collections.abc import Collection
from pathlib import Path

README = Path(__file__).parent.parent / "README.md"

# How old a result may be.
_OLDEST = datetime.timedelta(days=7)


def faults_of(text: str, steps: Collection[str], today: datetime.date) -> list[str]:
    """Return what is wrong with the table in ``text``: a step that is missing or none, a date that is too old."""
    table = re.split(r"(?m)^## ", text.partition("\n## Nightly\n")[2])[0]
    rows = {row[0].strip(): row[-1].strip() for row in re.findall(r"(?m)^\| (\w+) \|.*\|([^|]*)\|$", table)}
    del rows["step"]
    faults = [f"{name}: the table has no row for this step" for name in sorted(steps - rows.keys())]
    faults += [f"{name}: there is no such step" for name in sorted(rows.keys() - steps)]
    for name, date in rows.items():
        try:
            age = today - datetime.date.fromisoformat(date)
        except ValueError:
            faults.append(f"{name}: `{date}` is no date: it has not passed")
            continue
        if age > _OLDEST:
            faults.append(f"{name}: it last passed on {date}, {age.days} days ago")
    return faults
