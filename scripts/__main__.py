"""The command line: ``python -m scripts <verb>``."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path

from .errors import GraftError
from .graft import build
from .layout import REPOSITORY, Layout


def main(arguments: list[str] | None = None) -> int:
    """Run one verb; return the exit code."""
    options = _parser().parse_args(arguments)
    try:
        layout = Layout(options.pin, options.native.resolve(), options.out.resolve())
        build(layout, base_wheel=options.wheel, jobs=options.jobs)
    except GraftError as error:
        if options.verbose:
            traceback.print_exc()
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted; run the same command again to go on", file=sys.stderr)
        return 130
    except OSError as error:
        if options.verbose:
            traceback.print_exc()
        print(f"error: {error}\n  next: free some space or mend the permissions, and build again", file=sys.stderr)
        return 11
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m scripts", description="Build native operators into PyTorch.")
    verbs = parser.add_subparsers(dest="verb", required=True)
    graft = verbs.add_parser("build", help="build the wheel of a native folder")
    graft.add_argument("--pin", default="2.13.0", help="a folder of patches/ (default: %(default)s)")
    graft.add_argument("--native", type=Path, default=REPOSITORY / "native", help="the folder of operators")
    graft.add_argument("--out", type=Path, default=REPOSITORY / "dist", help="where the wheel goes")
    graft.add_argument("--wheel", type=Path, help="the base wheel as a file, instead of asking pip")
    graft.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="compilers at once (default: %(default)s)")
    graft.add_argument("-v", "--verbose", action="store_true", help="show tracebacks")
    return parser


if __name__ == "__main__":
    sys.exit(main())
