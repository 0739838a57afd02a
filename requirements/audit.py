"""Audits the locked versions with pip-audit: fails for a known vulnerability that a newer version fixes, not for want of a network.

python requirements/audit.py PIP_AUDIT [REQUIREMENTS] [options of pip-audit ...]
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

LOCKED = Path(__file__).with_name("constraints.txt")
# OSV has PyPI's advisories and GitHub's; versions are all pinned, so nothing has to be resolved
OPTIONS = ("--vulnerability-service", "osv", "--no-deps", "--disable-pip", "--format", "json", "--progress-spinner", "off")


def verdict(report: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Of a report of pip-audit: what has a fix, and what has none yet, a line each."""
    fixed, unfixed = [], []
    for package in report["dependencies"]:
        for found in package.get("vulns", []):
            fixes = found["fix_versions"]
            package_in_words = f"{package['name']} {package['version']}: {found['id']}"
            if fixes:
                fixed.append(f"{package_in_words}, fixed in {', '.join(fixes)}")
            else:
                unfixed.append(f"{package_in_words}, not fixed by any version yet")
    return fixed, unfixed


def main(arguments: Sequence[str]) -> int:
    """Exit code 1 where a newer version would help."""
    program, *more = arguments
    requirements = [more.pop(0)] if more and not more[0].startswith("-") else [str(LOCKED)]
    done = subprocess.run([program, "-r", *requirements, *OPTIONS, *more], capture_output=True, text=True, check=False)
    try:
        report = json.loads(done.stdout)
    except ValueError:
        why = (done.stderr.strip().splitlines() or ["pip-audit says nothing"])[-1]
        print(f"nothing was audited: {why}", file=sys.stderr)
        return 0
    fixed, unfixed = verdict(report)
    print("\n".join([*unfixed, *fixed, f"{len(report['dependencies'])} packages audited, {len(fixed)} to be moved"]))
    return int(bool(fixed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
