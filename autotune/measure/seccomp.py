"""A filter of system calls: a worker computes, it starts nothing and talks to nobody.

Refused with EPERM: new processes (threads are fine), programs, sockets, namespaces, mounts,
tracing, leaving the process group, signals and limits of other processes, their memory and
descriptors, shared memory with names, the processor's state but for matrix tiles where these are
to be run. In: nothing. Out: an installed filter, which holds for the process and whatever it
becomes.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import struct

from autotune import tile_permission

_SECCOMP_MODE_FILTER, _PR_SET_SECCOMP = 2, 22
_ALLOW, _REFUSE, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_LOAD, _JUMP_EQUAL, _JUMP_FROM, _JUMP_SET, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _MACHINE, _FIRST, _SECOND = 0, 4, 16, 24
"""Offsets in the data a filter sees: the call's number, the machine, the low halves of the first
two arguments (all machines below are little-endian)."""
_CLONE_THREAD = 0x10000
"""Flag of clone."""
_X32 = 0x40000000
"""Bit of the calls of x86-64's x32 interface, which filters must know."""
_INSTRUCTION = struct.Struct("<HBBI")

_X86_64 = {
    "clone": 56, "kill": 62, "tgkill": 234, "prlimit64": 302,
    "fork": 57, "vfork": 58, "execve": 59, "execveat": 322, "socket": 41, "socketpair": 53,
    "setsid": 112, "setpgid": 109, "ptrace": 101, "process_vm_readv": 310,
    "process_vm_writev": 311, "unshare": 272, "setns": 308, "mount": 165, "umount2": 166,
    "pivot_root": 155, "chroot": 161, "bpf": 321, "perf_event_open": 298, "keyctl": 250,
    "add_key": 248, "request_key": 249, "userfaultfd": 323, "kexec_load": 246,
    "init_module": 175, "finit_module": 313, "delete_module": 176, "reboot": 169, "swapon": 167,
    "swapoff": 168, "tkill": 200, "rt_sigqueueinfo": 129, "rt_tgsigqueueinfo": 297,
    "shmget": 29, "shmat": 30, "semget": 64, "msgget": 68, "mq_open": 240, "kcmp": 312,
    "open_by_handle_at": 304, "arch_prctl": tile_permission.SYSTEM_CALL,
}  # fmt: skip
_GENERIC = {
    "clone": 220, "kill": 129, "tgkill": 131, "prlimit64": 261,
    "execve": 221, "execveat": 281, "socket": 198, "socketpair": 199,
    "setsid": 157, "setpgid": 154, "ptrace": 117, "process_vm_readv": 270,
    "process_vm_writev": 271, "unshare": 97, "setns": 268, "mount": 40, "umount2": 39,
    "pivot_root": 41, "chroot": 51, "bpf": 280, "perf_event_open": 241, "keyctl": 219,
    "add_key": 217, "request_key": 218, "userfaultfd": 282, "kexec_load": 104,
    "init_module": 105, "finit_module": 273, "delete_module": 106, "reboot": 142, "swapon": 224,
    "swapoff": 225, "tkill": 130, "rt_sigqueueinfo": 138, "rt_tgsigqueueinfo": 240,
    "shmget": 194, "shmat": 196, "semget": 190, "msgget": 186, "mq_open": 180, "kcmp": 272,
    "open_by_handle_at": 265,
}  # fmt: skip
_COMMON = {
    "io_uring_setup": 425, "pidfd_send_signal": 424, "open_tree": 428, "move_mount": 429,
    "fsopen": 430, "pidfd_open": 434, "mount_setattr": 442, "pidfd_getfd": 438,
    "process_madvise": 440,
}  # fmt: skip
_CLONE3 = 435
"""Number of clone3 on every machine."""
_MACHINES = {
    "x86_64": (0xC000003E, _X86_64),
    "aarch64": (0xC00000B7, _GENERIC),
    "riscv64": (0xC00000F3, _GENERIC),
}
_AF_UNIX = 1
"""Family of sockets within a machine."""
_CONDITIONAL = ("clone", "kill", "tgkill", "prlimit64")
_PROGRAMS = ("clone", "fork", "vfork", "execve", "execveat")


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def install(
    libc: ctypes.CDLL, programs: bool = False, local_sockets: bool = False, tiles: bool = False
) -> None:
    """Filter the calls of this process, which has no_new_privs set. With `programs` it may start
    others, which have the same filter; with `tiles` it may ask for matrix tiles. Raises OSError,
    and NotImplementedError on machines whose calls are not in the tables above."""
    machine = platform.machine().lower()
    code = program(machine, os.getpid(), programs, local_sockets, tiles)
    buffer = ctypes.create_string_buffer(code, len(code))
    filters = _Program(len(code) // _INSTRUCTION.size, ctypes.addressof(buffer))
    if libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.byref(filters), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


def program(
    machine: str,
    pid: int,
    programs: bool = False,
    local_sockets: bool = False,
    tiles: bool = False,
) -> bytes:
    """The filter's instructions. Raises NotImplementedError."""
    if machine not in _MACHINES:
        raise NotImplementedError(f"no table of system calls for {machine}")
    number, calls = _MACHINES[machine]
    refuse = _op(_RETURN, _REFUSE | errno.EPERM)
    allow = _op(_RETURN, _ALLOW)
    out = [_op(_LOAD, _MACHINE), _op(_JUMP_EQUAL, number, 1, 0), _op(_RETURN, _KILL)]
    out.append(_op(_LOAD, _NUMBER))
    if machine == "x86_64":
        out += [_op(_JUMP_FROM, _X32, 0, 1), refuse]
    # glibc falls back to clone, whose flags a filter can see
    out += [_op(_JUMP_EQUAL, _CLONE3, 0, 1), _op(_RETURN, _REFUSE | errno.ENOSYS)]
    for name, call in {**calls, **_COMMON}.items():
        allowed = {"socket": local_sockets, "arch_prctl": tiles or programs}
        if name not in _CONDITIONAL and not allowed.get(name, programs and name in _PROGRAMS):
            out += [_op(_JUMP_EQUAL, call, 0, 1), refuse]
    tests = {
        "clone": [_op(_JUMP_SET, _CLONE_THREAD, 0, 1), allow],
        "kill": [_op(_JUMP_EQUAL, pid, 0, 1), allow],
        "tgkill": [_op(_JUMP_EQUAL, pid, 0, 1), allow],
        "prlimit64": [_op(_JUMP_EQUAL, 0, 1, 0), _op(_JUMP_EQUAL, pid, 0, 1), allow],
    }
    if programs:
        del tests["clone"]
    if local_sockets:
        tests["socket"] = [_op(_JUMP_EQUAL, _AF_UNIX, 0, 1), allow]
    if tiles and not programs and "arch_prctl" in calls:
        tests["arch_prctl"] = [
            _op(_JUMP_EQUAL, tile_permission.REQUEST, 0, 3),
            _op(_LOAD, _SECOND),
            _op(_JUMP_EQUAL, tile_permission.TILE_DATA, 0, 1),
            allow,
        ]
    for name, test in tests.items():
        block = [_op(_LOAD, _FIRST), *test, refuse]
        out += [_op(_JUMP_EQUAL, calls[name], 0, len(block)), *block]
    return b"".join([*out, allow])


def _op(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return _INSTRUCTION.pack(code, if_true, if_false, value)
