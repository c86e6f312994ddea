"""A filter of system calls, assembled by hand: the calls that a sandboxed program may not make.

It removes parts of the kernel that programs in a sandbox do not need: new namespaces and mounts,
other processes' memory, kernel modules, keys, io_uring, and sockets of families that no network
namespace contains (AF_VSOCK leads out of a virtual machine). Linux, x86_64 and aarch64; see
seccomp(2) and linux/bpf_common.h.
"""

import errno
import platform
import struct
from collections.abc import Mapping
from dataclasses import dataclass

from ludic_gym.errors import NoSandbox

LOAD, AND = 0x20, 0x54  # BPF_LD|BPF_W|BPF_ABS, BPF_ALU|BPF_AND|BPF_K
EQUAL, AT_LEAST, RETURN = 0x15, 0x35, 0x06  # BPF_JMP|BPF_JEQ|BPF_K, BPF_JMP|BPF_JGE|BPF_K, BPF_RET
# Offsets in struct seccomp_data. Of an argument, the lower four bytes are read, which hold all bits
# that are checked here.
NUMBER_AT, ARCHITECTURE_AT, ARGUMENT_AT = 0, 4, 16
KILL, ALLOW, REFUSE = 0x80000000, 0x7FFF0000, 0x00050000
# Numbers from here on are calls of the x32 interface: the same calls under other numbers.
X32 = 0x40000000
NEW_NAMESPACES = 0x7E020080  # CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}
FAMILIES = (1, 2, 10)  # AF_UNIX, AF_INET, AF_INET6
# SO_SNDBUF, SO_RCVBUF and the same with FORCE. Every descriptor may hold such a buffer.
SOL_SOCKET, BUFFER_OPTIONS = 1, (7, 8, 32, 33)
PUSH_INPUT, LINUX_INPUT = 0x5412, 0x541C  # TIOCSTI, TIOCLINUX: type on a terminal of the host

# These fail with ENOSYS, as on an old kernel: libraries then use older calls. clone3 takes its
# flags in memory, which a filter cannot read; libc falls back to clone.
ABSENT: Mapping[str, tuple[int, int]] = {
    "clone3": (435, 435),
    "io_uring_setup": (425, 425),
    **{"io_uring_enter": (426, 426), "io_uring_register": (427, 427)},
    # Memory that belongs to no process, and so is neither counted nor limited where there is no
    # memory group: files without a name, and shared memory, messages and semaphores of System V.
    **{"memfd_create": (319, 279), "shmget": (29, 194), "msgget": (68, 186), "semget": (64, 190)},
}
# These fail with EPERM. Numbers on x86_64 and on aarch64.
REFUSED: Mapping[str, tuple[int, int]] = {
    # Other namespaces, mounts and roots, and handles of files outside them.
    **{"unshare": (272, 97), "setns": (308, 268), "mount": (165, 40), "umount2": (166, 39)},
    **{"pivot_root": (155, 41), "chroot": (161, 51), "fanotify_init": (300, 262)},
    **{"name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265)},
    # Memory and descriptors of other processes.
    **{"ptrace": (101, 117), "kcmp": (312, 272), "move_pages": (279, 239)},
    **{"process_vm_readv": (310, 270), "process_vm_writev": (311, 271)},
    # Code in the kernel, or another kernel.
    **{"init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106)},
    **{"bpf": (321, 280), "kexec_load": (246, 104), "kexec_file_load": (320, 294)},
    # Keys, which no namespace separates.
    **{"add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219)},
    # Settings of the machine.
    **{"acct": (163, 89), "quotactl": (179, 60), "reboot": (169, 142), "settimeofday": (164, 170)},
    **{"swapon": (167, 224), "swapoff": (168, 225), "syslog": (103, 116), "vhangup": (153, 58)},
    # Frequent parts of exploits, which programs hardly use.
    **{"perf_event_open": (298, 241), "personality": (135, 92), "userfaultfd": (323, 282)},
    **{"lookup_dcookie": (212, 18)},
}
# Since 5.1 every architecture gives new calls the same numbers.
SHARED: Mapping[str, int] = {
    **{"open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432},
    **{"fspick": 433, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447},
    **{"pidfd_getfd": 438, "process_madvise": 440},
}


@dataclass(frozen=True, slots=True)
class Machine:
    """An architecture: its AUDIT_ARCH, its column in `REFUSED`, and calls with checked arguments.

    clone, socket, ioctl, setsockopt: the numbers of these calls.
    """

    audit: int
    column: int
    clone: int
    socket: int
    ioctl: int
    setsockopt: int


MACHINES: Mapping[str, Machine] = {
    "x86_64": Machine(0xC000003E, 0, 56, 41, 16, 54),
    "aarch64": Machine(0xC00000B7, 1, 220, 198, 29, 208),
}


def syscall_filter(machine: str = "") -> bytes:
    """The filter as an array of `struct sock_filter`, for that machine or this one.

    machine: "x86_64" or "aarch64", by default this machine's.
    Raises NoSandbox for other architectures.

    The program of the filter, of which the kernel runs one copy before each system call:

        1. kill on another architecture, ENOSYS for the x32 interface
        2. EPERM for the calls of `REFUSED` and `SHARED`, ENOSYS for those of `ABSENT`
        3. EPERM for clone with a flag of a new namespace
        4. EAFNOSUPPORT for a socket of a family that is not in `FAMILIES`
        5. EPERM for an ioctl that types on a terminal
        6. EPERM for a socket option that enlarges a buffer
        7. allow

    >>> len(syscall_filter("x86_64")) % 8  # every instruction has 8 bytes
    0
    """
    machine = machine or platform.machine()
    if machine not in MACHINES:
        names = " and ".join(MACHINES)
        raise NoSandbox(f"the filter of system calls is for {names}, this machine is {machine!r}")
    this = MACHINES[machine]
    numbers = [pair[this.column] for pair in REFUSED.values()]
    absent = [pair[this.column] for pair in ABSENT.values()]
    # A list of refused calls, not of allowed ones: programs are in any language, and a new libc may
    # use calls that no list of today knows. Namespaces are the first line of defence.
    return b"".join(
        [
            _step(LOAD, ARCHITECTURE_AT),
            # Numbers mean other calls on other architectures, 32-bit calls on x86_64 among them.
            _step(EQUAL, this.audit, yes=1),
            _step(RETURN, KILL),
            _step(LOAD, NUMBER_AT),
            _step(AT_LEAST, X32, no=1),
            _step(RETURN, REFUSE | errno.ENOSYS),
            *(_case(number, _fail(errno.EPERM)) for number in (*numbers, *SHARED.values())),
            *(_case(number, _fail(errno.ENOSYS)) for number in absent),
            _case(
                this.clone,
                _step(LOAD, ARGUMENT_AT),
                _step(AND, NEW_NAMESPACES),
                *_unless((0,), errno.EPERM),
            ),
            _case(this.socket, _step(LOAD, ARGUMENT_AT), *_unless(FAMILIES, errno.EAFNOSUPPORT)),
            # Input pushed into a terminal would be run by the shell that reads it later.
            _case(
                this.ioctl,
                _step(LOAD, ARGUMENT_AT + 8),
                *_if((PUSH_INPUT, LINUX_INPUT), errno.EPERM),
            ),
            _case(
                this.setsockopt,
                # Options of other levels have other meanings.
                _step(LOAD, ARGUMENT_AT + 8),
                _step(EQUAL, SOL_SOCKET, yes=1),
                _step(RETURN, ALLOW),
                _step(LOAD, ARGUMENT_AT + 16),
                *_if(BUFFER_OPTIONS, errno.EPERM),
            ),
            _step(RETURN, ALLOW),
        ]
    )


def _step(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """One instruction; `yes` and `no` are the numbers of instructions that a jump skips."""
    return struct.pack("=HBBI", code, yes, no, value)


def _fail(error: int) -> bytes:
    return _step(RETURN, REFUSE | error)


def _case(number: int, *steps: bytes) -> bytes:
    """Steps for one call only; they must return, since they may replace the loaded number."""
    return _step(EQUAL, number, no=len(steps)) + b"".join(steps)


def _if(values: tuple[int, ...], error: int) -> list[bytes]:
    """Steps that fail for these values, and allow all others."""
    return [*_jumps(values), _step(RETURN, ALLOW), _fail(error)]


def _unless(values: tuple[int, ...], error: int) -> list[bytes]:
    """Steps that allow these values, and fail for all others."""
    return [*_jumps(values), _fail(error), _step(RETURN, ALLOW)]


def _jumps(values: tuple[int, ...]) -> list[bytes]:
    """Comparisons of which each jumps over those after it and over one more step."""
    return [_step(EQUAL, one, yes=len(values) - i) for i, one in enumerate(values)]
