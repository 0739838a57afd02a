"""A process in which a package is not to be had."""

import subprocess
import sys


def said_without(package: str, module: str) -> str:
    """The error of importing a module of `keyblock.integrations` there."""
    code = f"""import sys
sys.modules[{package!r}] = None
try:
    import keyblock.integrations.{module}
except ImportError as error:
    print(error)"""
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
