"""Files that a worker of a board may read: what Python, its packages and the loader need.

In: bounds, a worker's temporary directory. Out: paths of single files and narrow directories, and
an importer of the packages that lie in a source tree, whose directory itself cannot be listed.
Nothing of homes, of /etc but a few files of the loader, of other processes, of shared memory.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from autotune.measure.environment import INSTALLED

LIBRARIES = (
    "/lib", "/lib32", "/lib64", "/usr/lib", "/usr/lib32", "/usr/lib64", "/usr/local/lib",
    "/usr/local/lib64", "/usr/share/zoneinfo",
)  # fmt: skip
LOADER_FILES = (
    "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/ld.so.preload",
    "/etc/localtime", "/etc/ssl/openssl.cnf", "/etc/alternatives",
)  # fmt: skip
KERNEL_FILES = (
    "/proc/self", "/proc/cpuinfo", "/proc/meminfo", "/proc/stat", "/proc/version",
    "/proc/sys/vm", "/proc/sys/kernel/osrelease", "/proc/sys/kernel/random",
    "/proc/sys/kernel/cap_last_cap", "/sys/devices/system", "/sys/class/thermal",
    "/sys/devices/virtual/thermal", "/sys/kernel/mm/transparent_hugepage",
)  # fmt: skip
DEVICE_FILES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
PROGRAMS = (
    "/bin", "/usr/bin", "/usr/include", "/usr/libexec", "/usr/local/bin", "/usr/local/include",
    "/usr/share/pocl",
)  # fmt: skip
"""A compiler and a linker, with what they read."""
DRIVERS = (
    "/etc/OpenCL/vendors", "/etc/nvidia", "/opt/rocm", "/opt/intel", "/usr/local/cuda",
    "/usr/share/nvidia", "/usr/share/pocl", "/usr/local/nvidia",
    "/proc/driver", "/proc/devices", "/proc/modules", "/proc/filesystems", "/proc/bus/pci",
    "/sys/bus", "/sys/class", "/sys/dev", "/sys/devices", "/sys/module",
)  # fmt: skip
"""Files of GPUs' and OpenCL's drivers, and of the kernel that they ask."""
_PYTHON = ("lib", "lib64", "share/pocl", "etc/OpenCL")
_TOOLCHAIN = ("bin", "include", "libexec")


def readable(
    folder: str, programs: bool, devices: Sequence[str], library_path: str = ""
) -> list[str]:
    """Absolute paths, links not followed, of what is there; directories with all below them.
    `library_path`: where the loader looks first."""
    paths = [*LIBRARIES, *LOADER_FILES, *KERNEL_FILES, *DEVICE_FILES]
    paths += [p for p in library_path.split(":") if p.startswith("/") and p.strip("/")]
    parts: tuple[str, ...] = _PYTHON
    if programs:
        paths += PROGRAMS
        parts += _TOOLCHAIN
    if programs or devices:
        paths += DRIVERS
    homes = dict.fromkeys((sys.prefix, sys.base_prefix, sys.exec_prefix))
    paths += [os.path.join(home, part) for home in homes for part in parts]
    # a system below another one's root, run by an emulator, has libraries beside its /usr
    roots = [os.path.dirname(home) for home in homes if os.path.basename(home) == "usr"]
    paths += [os.path.join(root, part) for root in roots for part in ("lib", "lib64")]
    paths += [*installed(), *bundled(), *(place for _, place in packages(folder)), *devices]
    return [p for p in dict.fromkeys(map(os.path.abspath, paths)) if os.path.exists(p)]


def installed() -> list[str]:
    """Entries of the search path that hold nothing but installed modules."""
    return [p for p in sys.path if Path(p).name in INSTALLED or os.path.isfile(p)]


def bundled() -> list[str]:
    """Libraries that wheels bring along, beside their packages: `numpy.libs`."""
    return [str(path) for tree in trees() for path in Path(tree).glob("*.libs")]


def trees() -> list[str]:
    """Entries of the search path that may hold anything besides modules: a checkout, a home."""
    here = str(Path(__file__).resolve().parents[2])
    standard = os.path.dirname(os.__file__)
    entries = [*sys.path, *([] if Path(here).name in INSTALLED else [here])]
    found = dict.fromkeys(os.path.abspath(p) for p in entries if p and os.path.isdir(p))
    known = {standard, os.path.join(standard, "lib-dynload")}
    return [p for p in found if p not in known and Path(p).name not in INSTALLED]


def packages(folder: str) -> list[tuple[str, str]]:
    """Name and path of every package and module in a source tree, but for those in the worker's
    temporary directory; the first of a name is the one that counts."""
    found: dict[str, str] = {}
    for tree in trees():
        if os.path.realpath(tree) == os.path.realpath(folder):
            continue
        try:
            entries = sorted(os.scandir(tree), key=lambda e: e.name)
        except OSError:
            continue  # nothing can be imported from there either
        for entry in entries:
            name, suffix = os.path.splitext(entry.name)
            module = suffix == ".py" and entry.is_file()
            if name.isidentifier() and (module or (not suffix and _holds_modules(entry.path))):
                found.setdefault(name, entry.path)
    return list(found.items())


def _holds_modules(path: str) -> bool:
    try:
        return os.path.isdir(path) and any(name.endswith(".py") for name in os.listdir(path))
    except OSError:
        return False


class TreeImporter:
    """Finds the packages of source trees by what was seen of them before the trees were hidden."""

    def __init__(self, found: Iterable[tuple[str, str]]) -> None:
        self._places = dict(found)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: object = None
    ) -> importlib.machinery.ModuleSpec | None:
        """As an entry of sys.meta_path: of top-level packages and modules."""
        del target
        place = self._places.get(name) if path is None else None
        if place is None:
            return None
        if place.endswith(".py"):
            return importlib.util.spec_from_file_location(name, place)
        start = os.path.join(place, "__init__.py")
        if os.path.isfile(start):
            return importlib.util.spec_from_file_location(
                name, start, submodule_search_locations=[place]
            )
        spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [place]
        return spec


def inside(path: str | os.PathLike[str], paths: Iterable[str]) -> str:
    """The first of these directories that a path lies in, links followed; '' for none."""
    real = Path(path).resolve()
    for place in paths:
        if real.is_relative_to(Path(place).resolve()):
            return place
    return ""
