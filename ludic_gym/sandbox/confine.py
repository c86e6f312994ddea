"""Confinement of a worker's process by system calls. Only its text goes to `python -c`.

The defences, and the attack against which each stands:

    process namespace   signals to processes of the host, and processes that outlive the program
    network namespace   connections, also to services on the host's loopback
    root of its own     reading or changing files of the host; only the interpreter and /usr are
                        bound into it, read-only, and /tmp and /dev/shm are small and in memory
    filter of calls     undoing the above, and kernel interfaces with a history of exploits
    no capabilities     everything that is reserved to a root, in the namespaces too

The first process of the process namespace is ours. See unshare(2), pid_namespaces(7),
pivot_root(2), mount_setattr(2), seccomp(2). Where the kernel refuses a call, the process prints to
stderr and exits with code 70.
"""

import ctypes
import os
import signal
import sys

# Constants of the kernel's headers: the standard library has none of these calls in Python 3.11.
NEW_MOUNTS, NEW_IPC, NEW_HOSTNAME = 0x00020000, 0x08000000, 0x04000000
NEW_USERS, NEW_PROCESSES, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000
NAMESPACES = NEW_MOUNTS | NEW_IPC | NEW_HOSTNAME | NEW_PROCESSES | NEW_NETWORK
PRIVATE, BIND, NO_SETUID, NO_DEVICES, DETACH = 0x44000, 0x5000, 2, 4, 2
PARENT_DEATH, NO_NEW_PRIVILEGES, SECCOMP, DROP_BOUND = 1, 38, 22, 24
FILTER_MODE = 2
SET_MOUNT, RECURSIVE, READ_ONLY = 442, 0x8000, 1
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
STREAMS = {"fd": "", "stdin": "/0", "stdout": "/1", "stderr": "/2"}
# An empty folder of the host on which the new root is made, before it takes the place of "/".
ROOT = "/tmp"
REFUSED = 70

LIBC = ctypes.CDLL(None, use_errno=True)


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
    parent: int, as_root: bool, prefix: str, hidden: list[str], private: int, shared: int
) -> None:
    """Return in a process that is confined except for the filter.

    Three processes are left. The outer one is outside the process namespace and passes the exit
    code on. The first one of the namespace reaps orphans. The program runs in the third.

    parent: the process whose end ends all. as_root: True for a root that needs no user namespace.
    prefix: the interpreter's folder. hidden: folders below it or /usr that are empty for the
        program. private, shared: bytes of the file systems on /tmp and on /dev/shm.
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
    enter_root(prefix, hidden, private, shared)
    # The program must not be init itself: init ignores signals without a handler, SIGXCPU too.
    program = os.fork()
    if program:
        reap(program)
    # Signals to the program's process group would reach the processes above.
    os.setsid()
    # Without new privileges, no set-user-id program can undo the steps below.
    checked(LIBC.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0), "prctl")
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


def enter_root(prefix: str, hidden: list[str], private: int, shared: int) -> None:
    """Change to a root that has the interpreter, the system's programs, and two empty folders.

    Arguments are those of `confine`. The program runs in /tmp; /proc is that of the new processes.
    """
    # The folders must be open to the program's user, whatever the mask of this process.
    os.umask(0o022)
    # Mounts must not propagate to the host's namespace.
    checked(LIBC.mount(None, b"/", None, PRIVATE, None), "mount /")
    links = [path for path in SYSTEM if os.path.islink(path)]
    paths = [path for path in (*SYSTEM, *DEVICES) if os.path.exists(path) and path not in links]
    if not f"{prefix}/".startswith("/usr/"):
        paths.append(prefix)
    # They may lie below the folder that the new root hides: keep handles on them.
    handles = {path: os.open(path, os.O_PATH) for path in paths}
    mount_empty(ROOT, "size=4096,mode=755")
    for path, handle in handles.items():
        bind(handle, ROOT + path)
        # A program with such a handle could leave its root.
        os.close(handle)
    for path in links:
        os.symlink(os.readlink(path), ROOT + path)
    for name, number in STREAMS.items():
        os.symlink(f"/proc/self/fd{number}", f"{ROOT}/dev/{name}")
    for folder in hidden:
        mount_empty(ROOT + folder, "size=4096,mode=755")
    for folder in ("/tmp", "/dev/shm", "/proc"):
        os.mkdir(ROOT + folder)
    frozen = (ctypes.c_uint64 * 4)(READ_ONLY)
    size = ctypes.sizeof(frozen)
    root = os.fsencode(ROOT)
    checked(LIBC.syscall(SET_MOUNT, -1, root, RECURSIVE, frozen, size), "mount_setattr")
    mount_empty(f"{ROOT}/tmp", f"size={private},mode=1777")
    mount_empty(f"{ROOT}/dev/shm", f"size={shared},mode=1777")
    flags = NO_SETUID | NO_DEVICES
    checked(LIBC.mount(b"proc", root + b"/proc", b"proc", flags, None), "mount /proc")
    os.chdir(ROOT)
    # The old root is then mounted on the new one, from which it is removed.
    checked(LIBC.pivot_root(b".", b"."), "pivot_root")
    checked(LIBC.umount2(b".", DETACH), "umount")
    os.chdir("/tmp")


def mount_empty(folder: str, options: str) -> None:
    """Mount a file system in memory on a folder.

    options: of tmpfs, such as "size=4096,mode=755".
    """
    flags = NO_SETUID | NO_DEVICES
    result = LIBC.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", flags, os.fsencode(options))
    checked(result, f"mount {folder}")


def bind(handle: int, target: str) -> None:
    """Mount the file or folder of an open handle at a new path."""
    source = f"/proc/self/fd/{handle}"
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        os.close(os.open(target, os.O_CREAT))
    result = LIBC.mount(os.fsencode(source), os.fsencode(target), None, BIND, None)
    checked(result, f"mount {target}")


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
