"""The program that is measured."""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent.parent


def program():
    """What DORMOUSE names, or else the release build; ends if there is neither."""
    named = os.environ.get("DORMOUSE")
    found = [pathlib.Path(named)] if named else sorted(HERE.glob("target/*/release/dormouse"))
    if not found:
        sys.exit(f"{sys.argv[0]}: there is no release build: cargo build --release, or set DORMOUSE")
    return str(found[-1].resolve())
