"""The filter, run by an interpreter of BPF that is written from the manual."""

import errno
import struct

import pytest

from ludic_gym.errors import NoSandbox
from ludic_gym.sandbox.seccomp import syscall_filter

X86_64, AARCH64, I386 = 0xC000003E, 0xC00000B7, 0x40000003
ALLOWED, KILLED = "allowed", "killed"


def verdict(rules, architecture, number, *arguments):
    """Effect of the filter: "allowed", "killed", or the name of an errno."""
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=IIQ6Q", number, architecture, 0, *words)
    steps = list(struct.iter_unpack("=HBBI", rules))
    accumulator = at = 0
    while True:
        code, yes, no, value = steps[at]
        at += 1
        match code:
            case 0x20:
                (accumulator,) = struct.unpack_from("=I", data, value)
            case 0x54:
                accumulator &= value
            case 0x15:
                at += yes if accumulator == value else no
            case 0x35:
                at += yes if accumulator >= value else no
            case 0x06 if value == 0x7FFF0000:
                return ALLOWED
            case 0x06 if value == 0x80000000:
                return KILLED
            case 0x06:
                return errno.errorcode[value & 0xFFFF]


@pytest.mark.parametrize(
    ("machine", "architecture", "calls"),
    [
        # (read, ptrace, clone, socket, ioctl, memfd_create, shmget, setsockopt), by the tables in
        # the kernel's source.
        ("x86_64", X86_64, (0, 101, 56, 41, 16, 319, 29, 54)),
        ("aarch64", AARCH64, (63, 117, 220, 198, 29, 279, 194, 208)),
    ],
)
def test_each_call_gets_its_verdict(machine, architecture, calls):
    read, ptrace, clone, socket, ioctl, memfd_create, shmget, setsockopt = calls
    rules = syscall_filter(machine)
    cases = [
        ((read, 0), ALLOWED),
        ((ptrace, 16, 1), "EPERM"),
        ((425,), "ENOSYS"),  # io_uring_setup
        ((435,), "ENOSYS"),  # clone3: libraries then use clone
        ((429,), "EPERM"),  # move_mount
        ((clone, 0x01200011), ALLOWED),  # what fork() asks for
        ((clone, 0x003D0F00), ALLOWED),  # what pthread_create() asks for
        ((clone, 0x10000011), "EPERM"),  # a user namespace
        ((socket, 1), ALLOWED),  # AF_UNIX
        ((socket, 2), ALLOWED),  # AF_INET
        ((socket, 10), ALLOWED),  # AF_INET6
        ((socket, 16), "EAFNOSUPPORT"),  # AF_NETLINK
        ((socket, 40), "EAFNOSUPPORT"),  # AF_VSOCK
        ((ioctl, 0, 0x5401), ALLOWED),  # TCGETS
        ((ioctl, 0, 0x5412), "EPERM"),  # TIOCSTI
        # The kernel looks at the lower half only, and so must the filter.
        ((ioctl, 0, 0x1_0000_5412), "EPERM"),
        ((memfd_create,), "ENOSYS"),
        ((shmget,), "ENOSYS"),
        ((setsockopt, 3, 1, 2), ALLOWED),  # SO_REUSEADDR
        ((setsockopt, 3, 6, 7), ALLOWED),  # an option of TCP with the same number
        ((setsockopt, 3, 1, 7), "EPERM"),  # SO_SNDBUF
        ((setsockopt, 3, 1, 8), "EPERM"),  # SO_RCVBUF
        ((setsockopt, 3, 1, 33), "EPERM"),  # SO_RCVBUFFORCE
    ]
    for call, expected in cases:
        assert verdict(rules, architecture, *call) == expected, call


def test_other_ways_into_the_kernel_are_shut():
    rules = syscall_filter("x86_64")
    assert verdict(rules, I386, 0) == KILLED
    assert verdict(rules, X86_64, 0x40000000 | 101) == "ENOSYS"


def test_jumps_end_where_there_is_something():
    steps = list(struct.iter_unpack("=HBBI", syscall_filter("aarch64")))
    assert len(steps) < 4096
    for at, (_, yes, no, _) in enumerate(steps):
        assert at + max(yes, no) + 1 <= len(steps)


def test_an_unknown_machine_is_refused():
    with pytest.raises(NoSandbox, match="for x86_64 and aarch64, this machine is 'riscv64'"):
        syscall_filter("riscv64")
