"""keyblock-key: makes an API key, and the entry that lets the service know it."""

import argparse
import sys
from collections.abc import Sequence

from keyblock import __version__

try:
    from service.keys.keys import KeysError, Scope, make
except ImportError as error:
    sys.exit(f"keyblock-key: install the extra serve: pip install 'keyblock[serve]' ({error})")

PROGRAM = "keyblock-key"
ABOUT = """Makes an API key. The key itself goes to standard error, once: give it to its holder, it is kept nowhere. Its entry for
KEYBLOCK_API_KEYS_FILE, which holds a hash of it, goes to standard output:

    keyblock-key search --scopes rank,documents >> keys.jsonl
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Returns the exit code: 2 with one line on stderr for an invalid name or scope."""
    parser = argparse.ArgumentParser(prog=PROGRAM, description=ABOUT, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    parser.add_argument("name", help="what logs call it")
    parser.add_argument("--scopes", default=Scope.RANK.value, help=f"some of {','.join(Scope)}; rank by default")
    parser.add_argument(
        "--namespace", default="", help="of its documents by id; its name by default. Keys that share one share them"
    )
    options = parser.parse_args(arguments)
    try:
        new = make(options.name, [scope.strip() for scope in options.scopes.split(",")], options.namespace)
    except KeysError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 2
    print(f"the key, shown this once: {new.secret}", file=sys.stderr)
    print(new.entry)
    return 0


if __name__ == "__main__":
    sys.exit(main())
