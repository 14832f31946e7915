"""The table of all attacks, and what failed.

    python -m tests.attacks.report [--world=FOLDER] [PART OF A NAME …]

Parts choose the cases whose kind and name have all of them. The files that attacks start from are
kept in the world's folder, and taken from there the next time.
"""

import argparse
import pathlib
import shutil
import sys
import tempfile
import time

from tests.attacks import suite
from tests.attacks.cases import ALL


def main() -> int:
    begin = time.monotonic()
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--world", type=pathlib.Path)
    parser.add_argument("parts", nargs="*")
    asked = parser.parse_args()
    cases = [c for c in ALL if all(part in f"{c.kind}: {c.name}" for part in asked.parts)]
    folder = pathlib.Path(tempfile.mkdtemp(prefix="attacks-"))
    attacks = suite.Suite(folder, asked.world or folder / "world")
    failures = attacks.build() if not (asked.world and asked.world.exists()) else []
    built = time.monotonic() - begin
    ended = attacks.run(cases, lambda text: print(text, flush=True)) if not failures else []
    attacks.close()
    for one in failures:
        print(one)
    if ended:
        print(suite.table(ended))
    for one in sorted(ended, key=lambda o: -o.seconds)[:12]:
        print(f"{one.seconds:.1f} s {one.bytes / 1e6:.0f} MB {one.case.name}")
    seconds = time.monotonic() - begin
    print(f"{len(cases)} cases in {seconds:.0f} s, of which {built:.0f} s for the files")
    bad = bool(failures) or any(one.problems for one in ended)
    if bad:
        print(f"The folders of cases that failed are in {folder}")
    else:
        shutil.rmtree(folder)
    return int(bad)


if __name__ == "__main__":
    sys.exit(main())
