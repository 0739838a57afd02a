"""The entry of the command `keyblock`: prints a line, and no stack trace, if the extra that it needs is not installed."""

import sys


def main() -> int:
    """Run the command line. Returns the exit code."""
    try:
        from service.command.main import main as run
    except ImportError as error:
        print(f"keyblock: install the extra cli: pip install 'keyblock[cli]' ({error})", file=sys.stderr)
        return 1
    return run()


if __name__ == "__main__":
    sys.exit(main())
