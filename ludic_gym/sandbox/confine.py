"""Confinement of a worker's process by system calls. Only its text goes to `python -c`.

The defences, and the attack against which each stands:

    process namespace   signals to processes of the host, and processes that outlive the program
    network namespace   connections, also to services on the host's loopback
    mounts              changes of the host's files; /tmp and /dev/shm are small and in memory
    Landlock            reading files of the host other than the interpreter and /usr
    filter of calls     undoing the above, and kernel interfaces with a history of exploits
    no capabilities     everything that is reserved to a root, in the namespaces too

The first process of the process namespace is ours. See unshare(2), pid_namespaces(7), landlock(7),
seccomp(2). Where the kernel refuses a call, the process prints to stderr and exits with code 70.
"""

import ctypes
import os
import signal
import sys

# Constants of the kernel's headers: the standard library has none of these calls in Python 3.11.
NEW_MOUNTS, NEW_IPC, NEW_HOSTNAME = 0x00020000, 0x08000000, 0x04000000
NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
NAMESPACES = NEW_MOUNTS | NEW_IPC | NEW_HOSTNAME | NEW_PROCESSES | NEW_NETWORK
PRIVATE, BIND, NO_SETUID, NO_DEVICES = 0x44000, 0x5000, 2, 4
PARENT_DEATH, NO_NEW_PRIVILEGES, SECCOMP, DROP_BOUND = 1, 38, 22, 24
FILTER_MODE = 2
SET_MOUNT, RECURSIVE, READ_ONLY = 442, 0x8000, 1
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446
# Landlock's rights: execute a file, read a file, list a folder; and all rights of each version. A
# right that is not handled would be allowed, so all that the kernel knows are handled.
READ, VERSION_FLAG, BENEATH = 0b1101, 1, 1
ALL_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
NEWEST_RIGHTS = (1 << 16) - 1
# The rights that the kernel accepts in a rule for a file that is no folder.
FILE_RIGHTS = 0b111 | 1 << 14 | 1 << 15
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
WRITABLE = ("/tmp", "/dev/shm")
REFUSED = 70

LIBC = ctypes.CDLL(None, use_errno=True)


class RulesetAttributes(ctypes.Structure):
    """struct landlock_ruleset_attr, of the first version."""

    _fields_ = (("handled", ctypes.c_uint64),)


class PathBeneath(ctypes.Structure):
    """struct landlock_path_beneath_attr."""

    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("folder", ctypes.c_int32))


class Filter(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("steps", ctypes.c_char_p))


def checked(result: int, what: str) -> int:
    """The result of a system call; end the process if it failed.

    what: the call's name, for the message on stderr. A confinement that is incomplete must not run
    anything, so there is no error that a caller could catch.
    """
    if result < 0:
        sys.stderr.write(f"{what}: {os.strerror(ctypes.get_errno())}\n")
        sys.stderr.flush()
        os._exit(REFUSED)
    return result


def confine(
    parent: int,
    as_root: bool,
    prefix: str,
    readable: list[str],
    sizes: list[int],
    hidden: list[str],
) -> None:
    """Return in a process that is confined except for the filter.

    Three processes are left. The outer one is outside the process namespace and passes the exit
    code on. The first one of the namespace reaps orphans. The program runs in the third.

    parent: the process whose end ends all. as_root: True for a root that needs no user namespace.
    prefix: the interpreter's folder. readable: further paths that the program may read.
    sizes: of the file systems on /tmp and on /dev/shm, in bytes. hidden: folders that are empty for
        the program.
    """
    enter_namespaces(as_root)
    checked(LIBC.prctl(PARENT_DEATH, signal.SIGKILL, 0, 0, 0), "prctl")
    # The parent may have ended before the line above, which then has no effect.
    if os.getppid() != parent:
        os._exit(REFUSED)
    # unshare does not move the caller into the new process namespace, only its next children. The
    # first of them is the namespace's init: when it ends, the kernel kills all the others.
    first = os.fork()
    if first:
        end_like(os.waitpid(first, 0)[1])
    checked(LIBC.prctl(PARENT_DEATH, signal.SIGKILL, 0, 0, 0), "prctl")
    mount_files(prefix, *sizes)
    for folder in hidden:
        mount_empty(folder, "size=4096,mode=755")
    # The program must not be init itself: init ignores signals without a handler, SIGXCPU too.
    program = os.fork()
    if program:
        reap(program)
    # Signals to the program's process group would reach the processes above.
    os.setsid()
    # Without new privileges, no set-user-id program can undo the steps below.
    checked(LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
    allow_files([prefix, *readable, *DEVICES, "/proc"])
    if not as_root:
        drop_capabilities()


def filter_calls(rules: bytes) -> None:
    """Install the filter of system calls, for this process and its future children, for good.

    rules: an array of `struct sock_filter`, from `syscall_filter`.
    """
    filtered = Filter(len(rules) // 8, rules)
    checked(LIBC.prctl(SECCOMP, FILTER_MODE, ctypes.byref(filtered), 0, 0), "seccomp")


def enter_namespaces(as_root: bool) -> None:
    """Leave the host's processes, network and mounts.

    A root of the host has the capabilities for it. Any other user first gets a user namespace, in
    which it keeps its own id and has every capability until `drop_capabilities`.
    """
    # Inside the user namespace both would be 65534 until the maps are written.
    user, group = os.getuid(), os.getgid()
    if as_root:
        checked(LIBC.unshare(NAMESPACES), "unshare")
        return
    checked(LIBC.unshare(NAMESPACES | NEW_USERS), "unshare")
    # The kernel lets a user write gid_map only after setgroups is denied; see user_namespaces(7).
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {user} 1"),
        ("gid_map", f"{group} {group} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def end_like(status: int) -> None:
    """Exit as the process with that status did: with its code, or 128 + n for signal n."""
    code = os.waitstatus_to_exitcode(status)
    os._exit(code if code >= 0 else 128 - code)


def reap(program: int) -> None:
    """Reap orphans until the program ends, then exit with its code."""
    # The reader of the program's output must see its end as soon as the program has closed it.
    for descriptor in range(3):
        os.close(descriptor)
    while True:
        child, status = os.wait()
        if child == program:
            end_like(status)


def mount_files(prefix: str, disk_bytes: int, shared_bytes: int) -> None:
    """Mount all read-only except for two empty folders, and a /proc of the new processes.

    prefix: the interpreter's folder, which stays where it is. disk_bytes: of /tmp, in which the
    program runs. shared_bytes: of /dev/shm.
    """
    # Mounts must not propagate to the host's namespace.
    checked(LIBC.mount(None, b"/", None, PRIVATE, None), "mount /")
    # Landlock alone would let the owner of a file change its mode and its times.
    frozen = (ctypes.c_uint64 * 4)(READ_ONLY)
    size = ctypes.sizeof(frozen)
    checked(LIBC.syscall(SET_MOUNT, -1, b"/", RECURSIVE, frozen, size), "mount_setattr")
    # The folder may lie below /tmp or a home, which the mounts below hide: keep a handle on it.
    kept = os.open(prefix, os.O_PATH | os.O_CLOEXEC)
    mount_empty("/tmp", f"size={disk_bytes},mode=1777")
    mount_empty("/dev/shm", f"size={shared_bytes},mode=1777")
    if not f"{prefix}/".startswith("/usr/"):
        mount_alone(prefix, kept)
    os.close(kept)
    checked(LIBC.mount(b"proc", b"/proc", b"proc", NO_SETUID | NO_DEVICES, None), "mount /proc")
    os.chdir("/tmp")


def mount_empty(folder: str, options: str) -> None:
    """Mount a file system in memory on a folder.

    options: of tmpfs, such as "size=4096,mode=755".
    """
    flags = NO_SETUID | NO_DEVICES
    result = LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, os.fsencode(options))
    checked(result, f"mount {folder}")


def mount_alone(path: str, descriptor: int) -> None:
    """Mount a folder at its own path, without its siblings.

    descriptor: of the folder, opened before a mount hid its path.
    """
    # The folders above it may be closed to the program's user (/root, a home of mode 700). An empty
    # file system over the topmost one replaces all of them.
    top = "/" + path.split("/")[1]
    if top not in WRITABLE:
        mount_empty(top, "mode=755")
    os.makedirs(path)
    source = b"/proc/self/fd/%d" % descriptor
    checked(LIBC.mount(source, os.fsencode(path), None, BIND, None), f"mount {path}")


def allow_files(readable: list[str]) -> None:
    """Refuse all files except for these, which can be read, and those in memory.

    Landlock checks a path when it is opened. An open descriptor, such as the pipes, stays usable.
    """
    version = checked(LIBC.syscall(CREATE_RULESET, None, 0, VERSION_FLAG), "landlock")
    handled = ALL_RIGHTS.get(version, NEWEST_RIGHTS)
    attributes = RulesetAttributes(handled)
    ruleset = LIBC.syscall(CREATE_RULESET, ctypes.byref(attributes), ctypes.sizeof(attributes), 0)
    checked(ruleset, "landlock_create_ruleset")
    for path in readable:
        allow(ruleset, path, (READ | 2 if path in DEVICES else READ) & handled)
    for path in WRITABLE:
        allow(ruleset, path, handled)
    checked(LIBC.syscall(RESTRICT_SELF, ruleset, 0), "landlock_restrict_self")
    os.close(ruleset)


def allow(ruleset: int, path: str, rights: int) -> None:
    """Add a rule for all paths below one, if it exists.

    ruleset: its descriptor. rights: bits of Landlock's; those of folders are left out for a file.
    """
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    rule = PathBeneath(rights if os.path.isdir(path) else rights & FILE_RIGHTS, descriptor)
    checked(LIBC.syscall(ADD_RULE, ruleset, BENEATH, ctypes.byref(rule), 0), f"landlock {path}")
    os.close(descriptor)


def drop_capabilities() -> None:
    """Drop the capabilities that the creator of a user namespace has in it.

    They hold only inside the namespaces, but open parts of the kernel that a program does not need.
    """
    # First the bounding set, from which a program that is executed could regain them.
    for capability in range(64):
        if LIBC.prctl(DROP_BOUND, capability, 0, 0, 0) < 0:
            break
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    # Three sets (effective, permitted, inheritable) of 64 bits each; the header names their
    # version.
    nothing = (ctypes.c_uint32 * 6)()
    checked(LIBC.capset(header, nothing), "capset")
