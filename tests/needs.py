"""What tests need from the system: programs and libraries that no Python package brings.

In: this machine. Out: which needs it meets. `python -m tests.needs` installs the others where it
may (Debian's packages as root, by apt-get; npm's into a folder of the user's caches) and says what
it did.

A test says what it needs by `@needs("opencl")`, a helper by `require("qemu")` where it uses it.
Where a need is not met the test is skipped with the packages to install; with `--require-all` it
fails (tests/conftest.py).
"""

from __future__ import annotations

import ctypes.util
import functools
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from autotune.target import Target, load_target
from benchmarks.machines.mca_code import NEWEST


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Something that Debian's `packages` and those of `npm` bring, all of them together."""

    packages: tuple[str, ...] = ()
    npm: tuple[str, ...] = ()
    """`NAME@VERSION` each."""
    present: Callable[[], bool]
    use: str
    """What tests do with it; ends the sentence `needed to ...`."""

    @property
    def command(self) -> str:
        """What installs it."""
        steps = [["apt-get", "install", *self.packages]] if self.packages else []
        steps += [npm_install(self.npm)] if self.npm else []
        return " && ".join(map(shlex.join, steps))


OLDEST_MCA = 16
"""Version of LLVM from which on llvm-mca knows Alder Lake, which loads three vectors a cycle;
older ones take it for Skylake."""
CROSS_ROOT = Path("/usr/aarch64-linux-gnu")
"""Where Debian keeps the headers and libraries of aarch64 on other machines."""
NPM_FOLDER = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "autotune-npm"
"""npm's packages for tests, kept between runs; asked for once: tests have caches of their own."""
NODE_MODULES = NPM_FOLDER / "node_modules"
PEER_IN_BROWSERS = "onnxruntime-web@1.30.0"


def program(name: str) -> str | None:
    """The path of a program; PostgreSQL's server programs are out of Debian's search path."""
    servers = sorted(map(str, Path("/usr/lib/postgresql").glob("*/bin")), reverse=True)
    return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *servers]))


def _programs(*names: str) -> Callable[[], bool]:
    return lambda: all(program(name) for name in names)


def _newer_mca() -> bool:
    """Whether an llvm-mca is as new as its models of the cores in the tests."""
    names = [*(f"llvm-mca-{n}" for n in range(NEWEST, OLDEST_MCA - 1, -1)), "llvm-mca"]
    found = next(filter(None, map(program, names)), None)
    if found is None:
        return False
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"LLVM version (\d+)", said)
    return version is not None and int(version[1]) >= OLDEST_MCA


def _opencl() -> bool:
    return bool(ctypes.util.find_library("OpenCL")) and any(
        Path("/etc/OpenCL/vendors").glob("*.icd")
    )


def _cross_compiler() -> bool:
    return program("aarch64-linux-gnu-gcc") is not None and (CROSS_ROOT / "lib/libc.so").exists()


def _npm_packages(*packages: str) -> Callable[[], bool]:
    """Whether these are in the folder, in their versions."""

    def present() -> bool:
        for package in packages:
            name, version = package.rsplit("@", 1)
            about = NODE_MODULES / name / "package.json"
            if not about.exists() or json.loads(about.read_text())["version"] != version:
                return False
        return True

    return present


def npm_install(packages: Iterable[str]) -> list[str]:
    """npm's packages into the folder; none of their scripts is run."""
    quiet = ("--ignore-scripts", "--no-audit", "--no-fund")
    return ["npm", "install", *quiet, "--prefix", str(NPM_FOLDER), *packages]


def namespace() -> list[str]:
    """The start of a command that gives the rest of it mounts of its own."""
    return ["unshare", "--mount" if os.geteuid() == 0 else "--map-root-user", "--mount"]


def _mounts() -> bool:
    """Root may mount where its system lets it, others where there are user namespaces."""
    if not _programs("unshare", "mount")():
        return False
    command = [*namespace(), "mount", "--bind", "/tmp", "/tmp"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


NEEDS = {
    "cc": Need(
        packages=("gcc", "libc6-dev"),
        present=lambda: any(map(program, ("cc", "gcc", "clang"))),
        use="compile C kernels and the emulator of CUDA's threads",
    ),
    "aarch64-cc": Need(
        packages=("gcc-aarch64-linux-gnu", "libc6-arm64-cross", "libc6-dev-arm64-cross"),
        present=_cross_compiler,
        use="link kernels of aarch64 boards",
    ),
    "cortex-m": Need(
        packages=("gcc-arm-none-eabi", "libnewlib-arm-none-eabi", "qemu-system-arm"),
        present=_programs("arm-none-eabi-gcc", "qemu-system-arm"),
        use="build models for microcontrollers, and run them on a simulated board",
    ),
    "riscv32": Need(
        packages=(
            "gcc-riscv64-unknown-elf",
            "picolibc-riscv64-unknown-elf",
            "qemu-system-misc",
        ),
        present=_programs("riscv64-unknown-elf-gcc", "qemu-system-riscv32"),
        use="build models for RISC-V's microcontrollers, and run them on a simulated board",
    ),
    "cppcheck": Need(
        packages=("cppcheck",),
        present=_programs("cppcheck"),
        use="list where exported C deviates from MISRA C",
    ),
    "node": Need(packages=("nodejs",), present=_programs("node"), use="run models as WebAssembly"),
    "npm": Need(
        packages=("npm",), present=_programs("npm"), use="install other engines of WebAssembly"
    ),
    "onnxruntime-web": Need(
        npm=(PEER_IN_BROWSERS,),
        present=_npm_packages(PEER_IN_BROWSERS),
        use="compare WebAssembly with another engine's",
    ),
    "qemu": Need(
        packages=("qemu-user",),
        present=_programs("qemu-aarch64", "qemu-arm", "qemu-riscv64"),
        use="run kernels of aarch64, armv7 and riscv64 boards",
    ),
    "musl": Need(
        packages=("musl",),
        present=lambda: Path("/lib/ld-musl-x86_64.so.1").exists(),
        use="run shared libraries with a C library other than glibc",
    ),
    "llvm-mca": Need(
        packages=("llvm-19",),
        present=_newer_mca,
        use="predict how many multiply-adds a cycle inner loops reach",
    ),
    "opencl": Need(
        packages=("pocl-opencl-icd", "ocl-icd-libopencl1"),
        present=_opencl,
        use="run OpenCL kernels on a device that any processor can be",
    ),
    "postgres": Need(
        packages=("postgresql",),
        present=_programs("initdb", "postgres"),
        use="keep tuning logs in a PostgreSQL server",
    ),
    "mounts": Need(
        packages=("util-linux", "mount"),
        present=_mounts,
        use="mount folders, as root or in a user namespace, which the kernel must allow",
    ),
    "chromium": Need(
        packages=("chromium",),
        present=_programs("chromium"),
        use="look at reports and run models in a browser",
    ),
}


@functools.cache
def reason(name: str) -> str | None:
    """Why a need is not met, or None where it is: one line with what installs it."""
    need = NEEDS[name]
    if need.present():
        return None
    return f"{name} is missing, needed to {need.use}: {need.command}"


def needs(*names: str) -> pytest.MarkDecorator:
    """Mark a test, a parameter or (as `pytestmark`) a file that needs all of `names`."""
    unknown = set(names) - set(NEEDS)
    if unknown:
        raise ValueError(f"unknown needs {sorted(unknown)}; known: {sorted(NEEDS)}")
    return pytest.mark.needs(*names)


def require(name: str) -> None:
    """Skip the running test where `name` is missing."""
    missing = reason(name)
    if missing is not None:
        pytest.skip(missing)


def need_of(target: Target) -> str | None:
    """What code for a target needs to be built and run here, beside Python's packages."""
    if target.kind == "c":
        return "aarch64-cc" if target.triple.startswith("aarch64") else "cc"
    return "opencl" if target.kind == "opencl" else None


def require_for(target: Target) -> None:
    """Skip the running test where the target's code can't be built and run."""
    name = need_of(target)
    if name is not None:
        require(name)


def param(name: str) -> object:
    """A target's name as a parameter of tests, marked with what its code needs."""
    tool = need_of(load_target(name))
    return pytest.param(name, marks=[needs(tool)] if tool else [])


def missing() -> list[Need]:
    """Needs that are not met."""
    return [need for need in NEEDS.values() if not need.present()]


def install() -> None:
    """Install what is missing where that is possible; it is no error where it is not."""
    packages = [package for need in missing() for package in need.packages]
    if packages and (os.geteuid() != 0 or shutil.which("apt-get") is None):
        print(f"tests will be skipped for want of: {' '.join(packages)}", file=sys.stderr)
    elif packages:
        print(f"installing what tests need: {' '.join(packages)}", flush=True)
        _done("apt-get", "-qq", "update")
        _done("apt-get", "-qq", "install", "-y", "--no-install-recommends", *packages)
    modules = [package for need in missing() for package in need.npm]
    if modules and program("npm") is None:
        print(f"tests will be skipped for want of npm's {' '.join(modules)}", file=sys.stderr)
    elif modules:
        print(f"installing what tests need: npm's {' '.join(modules)}", flush=True)
        _done(*npm_install(modules))


def _done(*command: str) -> None:
    """A step of it; says where it fails."""
    done = subprocess.run(
        command,
        env={**os.environ, "DEBIAN_FRONTEND": "noninteractive"}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        said = done.stdout.strip()[-500:]
        print(f"{shlex.join(command[:3])} failed: {said}", file=sys.stderr)


if __name__ == "__main__":
    install()
