"""Builds the extension with nothing but a C++17 compiler, setuptools and nanobind."""

from pathlib import Path

import nanobind
from setuptools import Extension, setup

HERE = Path(__file__).resolve().parent
BINDING = Path(nanobind.source_dir()).parent  # see src/nanobind.cpp

setup(
    ext_modules=[
        Extension(
            "keyblock_native._core",
            sources=[str(path.relative_to(HERE)) for path in sorted(HERE.glob("src/*.cpp"))],
            depends=[str(path.relative_to(HERE)) for path in sorted(HERE.glob("src/*.hpp"))],
            include_dirs=[str(BINDING / part) for part in ("include", "src", "ext/robin_map/include")],
            # -ffp-contract=off: a product is rounded before it is added, as NumPy has it (src/selection.hpp)
            extra_compile_args=["-std=c++17", "-O3", "-fvisibility=hidden", "-fno-strict-aliasing", "-ffp-contract=off"],
            language="c++",
        )
    ]
)
