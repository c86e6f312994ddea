"""Programs that try to cheat, to break out, or to break the machine.

Each gets the arguments SECRET (a file of the host), PORT (a listener on the host's loopback, and
in the abstract socket "ludic-PORT"), PID (a process of the host), FOLDER (one of the host, which
the user may write to). It prints HARM where it did what it must not be able to do, and whatever
it could read. `CHEATS` has them by name; each source stands alone.
"""

_HEAD = """\
import contextlib, os, sys
SECRET, PORT, PID, FOLDER = (sys.argv[1:] + ["/home/user/secret", "9", "1", "/home/user"])[:4]
trying = contextlib.suppress(Exception)
def show(path):
    with trying: print(open(path, "rb").read(100000).decode(errors="replace"))
"""

_BODIES = {
    # Reading what is not theirs.
    "read the secret": "show(SECRET)",
    "read the password file": "show('/etc/passwd'); show('/etc/shadow')",
    "read the environment": """
print(dict(os.environ))
for pid in ("self", "1", str(os.getppid()), PID): show(f"/proc/{pid}/environ")
""",
    "read other processes": """
import ctypes
for pid in {1, os.getppid(), int(PID)}:
    for name in ("maps", "mem", "cmdline", "root" + SECRET, "cwd/" + SECRET):
        show(f"/proc/{pid}/{name}")
    if pid != os.getpid() and ctypes.CDLL(None).ptrace(16, pid, None, None) == 0: print("HARM")
""",
    "search all files": """
seen = 0
for folder, _, names in os.walk("/"):
    if folder.startswith(("/proc", "/sys", "/usr", sys.base_prefix)): continue
    for name in names[:50]:
        if seen < 2000 and os.path.isfile(f"{folder}/{name}"):
            seen += 1; show(f"{folder}/{name}")
""",
    "search all objects": """
import gc
frame = sys._getframe()
while frame:
    print({**frame.f_globals, **frame.f_locals}); frame = frame.f_back
print([text for thing in gc.get_objects() for text in gc.get_referents(thing)
       if type(text) in (str, bytes)][:20000])
""",
    "read open descriptors": """
import select
for fd in range(3, 256):
    with trying:
        os.set_blocking(fd, False); print(os.read(fd, 1000)); os.write(fd, b"PASS")
""",
    "follow links": """
for make in (os.symlink, os.link):
    with trying:
        make(SECRET, "way-" + make.__name__); show("way-" + make.__name__)
with trying: os.symlink(FOLDER, "out"); open("out/planted", "w").write("x")
with trying: os.symlink("/", "main2"); show("main2" + SECRET)
""",
    # Writing where it is not theirs.
    "write outside": """
for folder in (FOLDER, "/", "/usr/bin", "/etc", "/dev", "/var/tmp", os.path.dirname(os.__file__)):
    with trying: open(f"{folder}/planted", "w").write("x"); print("WROTE", folder)
with trying: os.remove(SECRET); print("HARM")
with trying: os.rename(SECRET, SECRET + "2"); print("HARM")
with trying: os.chmod(SECRET, 0o777); print("HARM")
""",
    "plant sitecustomize": """
for folder in {*sys.path, os.path.dirname(os.__file__), os.path.expanduser("~"), "."}:
    for name in ("sitecustomize.py", "usercustomize.py", "x.pth", "json.py", "re.py"):
        with trying: open(os.path.join(folder, name), "w").write("import os; os._exit(0)")
import json, re
""",
    "write kernel settings": """
for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/sys/kernel/uevent_helper",
             "/proc/self/oom_score_adj", "/dev/mem", "/dev/sda", "/dev/kmsg", "/sys/power/state"):
    with trying:
        with open(path, "r+b", buffering=0): "oom" in path or print("HARM", path)
""",
    # Another user, or another root.
    "become root": """
for change in (os.setuid, os.setgid, os.seteuid):
    with trying: change(0); os.getuid() or print("HARM")
with trying: os.setgroups([0]); print("HARM")
""",
    "make namespaces and mounts": """
import ctypes
c = ctypes.CDLL(None, use_errno=True)
for flags in (0x10000000, 0x20000, 0x10020000, 0x40000000):
    if c.unshare(flags) == 0: print("HARM unshare", hex(flags))
if c.mount(b"none", b"/tmp", b"tmpfs", 0, None) == 0: print("HARM mount")
if c.umount2(b"/proc", 2) == 0: print("HARM umount")
with trying: os.chroot("/tmp"); print("HARM chroot")
if c.syscall(56 if os.uname().machine == "x86_64" else 220, 0x10000011, 0, 0, 0, 0) >= 0:
    print("HARM clone")
""",
    "call rare system calls": """
import ctypes
c = ctypes.CDLL(None, use_errno=True)
same = os.uname().machine == "x86_64"
for x86, arm in ((321, 280), (323, 282), (250, 219), (304, 265), (246, 104), (298, 241)):
    if c.syscall(x86 if same else arm, 0, 0, 0, 0, 0) >= 0: print("HARM", x86)
for number in (425, 428, 430, 442): 
    if c.syscall(number, 1, 0, 0, 0, 0) >= 0 or ctypes.get_errno() not in (1, 38):
        print("HARM", number, ctypes.get_errno())
""",
    "raise limits": """
import resource
for kind in (resource.RLIMIT_CPU, resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_FSIZE):
    with trying: resource.setrlimit(kind, (-1, -1)); print("HARM", kind)
""",
    # Reaching out.
    "connect to loopback": """
import socket
for family, where in ((2, ("127.0.0.1", int(PORT))), (10, ("::1", int(PORT))),
                      (1, "\\0ludic-" + PORT), (1, FOLDER + "/socket")):
    with trying:
        s = socket.socket(family); s.settimeout(2); s.connect(where); print("HARM", where)
""",
    "connect outside": """
import socket
for family, kind, where in ((2, 1, ("1.1.1.1", 53)), (2, 2, ("1.1.1.1", 53)),
                            (10, 1, ("2606:4700:4700::1111", 53))):
    with trying:
        s = socket.socket(family, kind); s.settimeout(2); s.connect(where); s.send(b"x")
        print("HARM", where)
with trying: print("HARM", socket.getaddrinfo("example.com", 80))
""",
    "sockets of rare families": """
import socket
for family in (16, 17, 40, 38, 30, 21):
    for kind in (1, 2, 3):
        with trying: socket.socket(family, kind); print("HARM", family)
with trying: socket.socket(2, 3, 1); print("HARM raw")
""",
    "use the host's services": """
import socket
for path in ("/run/docker.sock", "/var/run/docker.sock", "/run/dbus/system_bus_socket",
             "/run/systemd/private", "/run/podman/podman.sock"):
    with trying: s = socket.socket(1); s.connect(path); print("HARM", path)
""",
    # Harming other processes.
    "kill the parent": """
import signal
for pid in (os.getppid(), 1, int(PID), -1):
    for number in (15, 9):
        with trying: os.kill(pid, number)
with trying: os.killpg(0, 9)
""",
    "stop everything": """
for pid in (os.getppid(), 1, int(PID), os.getpid()):
    with trying: os.kill(pid, 19)
""",
    "fork bomb": "while True:\n    with trying: os.fork()",
    "thread bomb": """
import threading, time
while True:
    with trying: threading.Thread(target=time.sleep, args=[99]).start()
""",
    "zombie children": """
import time
for _ in range(999):
    with trying:
        if os.fork() == 0: os._exit(0)
time.sleep(1)
""",
    "leave a daemon": """
import time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for fd in range(3): os.close(fd)
        while True:
            time.sleep(0.1)
            with trying: open(FOLDER + "/planted", "w").write("x")
    os._exit(0)
""",
    "type on the terminal": """
import fcntl
for path in ("/dev/tty", "/dev/console", "/proc/self/fd/0", "/dev/pts/0"):
    with trying:
        for letter in b"exit": fcntl.ioctl(os.open(path, os.O_RDWR), 0x5412, bytes([letter]))
        print("HARM", path)
""",
    # Using it all up.
    "allocate 4 GB": "x = bytearray(4 << 30); x[::4096] = b'1' * (1 << 20); print('HARM')",
    "allocate 4 GB by many": """
import time
for _ in range(40):
    with trying:
        if os.fork() == 0: x = b"x" * (100 << 20); time.sleep(99)
time.sleep(99)
""",
    "map memory": """
import mmap
kept = []
for _ in range(64): kept.append(mmap.mmap(-1, 64 << 20)); kept[-1].write(b"1" * (64 << 20))
print("HARM")
""",
    "shared anonymous memory": """
import mmap, time
for _ in range(40):
    with trying:
        if os.fork() == 0:
            x = mmap.mmap(-1, 100 << 20); x.write(b"x" * (100 << 20)); time.sleep(99)
time.sleep(99)
""",
    "files without a name": """
fds = []
for _ in range(64):
    fds.append(os.memfd_create("x"))
    for _ in range(16): os.write(fds[-1], b"x" * (1 << 20))
print("HARM")
""",
    "a secret memory file": """
import ctypes
c = ctypes.CDLL(None)
fd = c.syscall(447, 0)
if fd >= 0: os.ftruncate(fd, 1 << 30); print("HARM")
""",
    "shared memory of System V": """
import ctypes
c = ctypes.CDLL(None)
c.shmat.restype = ctypes.c_void_p
for _ in range(16):
    one = c.shmget(0, 64 << 20, 0o1600)
    if one < 0: sys.exit()
    where = ctypes.c_void_p(c.shmat(one, None, 0))
    ctypes.memset(where, 1, 64 << 20); c.shmdt(where)
print("HARM")
""",
    "messages of System V": """
import ctypes
c = ctypes.CDLL(None)
text = ctypes.create_string_buffer(b"1", 8 + 8192)
for _ in range(31000):
    queue = c.msgget(0, 0o1600)
    if queue < 0: sys.exit()
    for _ in range(2): c.msgsnd(queue, text, 8192, 0o4000)
print("HARM")
""",
    "empty files": """
for i in range(1 << 20):
    os.mkdir(f"{i}")
print("HARM")
""",
    "buffers of sockets": """
import socket
kept, full = [], 0
with trying:
    while True:
        for one in socket.socketpair():
            kept.append(one)
            with trying: one.setsockopt(1, 7, 1 << 22)
            one.setblocking(False)
            with trying:
                while True: full += one.send(b"x" * 65536)
if full > 1 << 28: print("HARM")
""",
    "buffers of pipes": """
import fcntl
full = 0
with trying:
    while True:
        _, pipe = os.pipe()
        with trying: fcntl.fcntl(pipe, 1031, 1 << 20)
        os.set_blocking(pipe, False)
        with trying:
            while True: full += os.write(pipe, b"x" * 65536)
if full > 1 << 28: print("HARM")
""",
    "write 1 GB": """
with open("big", "wb") as file:
    for _ in range(1024): file.write(b"0" * (1 << 20))
print("HARM")
""",
    "write 1 GB in many files": """
total = 0
for folder in ("/tmp", ".", "/dev/shm", "/var/tmp", "/run", "/dev"):
    for i in range(1024):
        with trying: total += open(f"{folder}/file{i}", "wb", 0).write(b"0" * (1 << 20))
if total >= 1 << 30: print("HARM")
""",
    "a file with a hole": "open('hole', 'wb').truncate(1 << 50); print('HARM')",
    "loop": "while True: pass",
    "loop deaf to signals": """
import signal
for number in set(signal.Signals) - {9, 19}:
    with trying: signal.signal(number, signal.SIG_IGN)
while True: pass
""",
    "a hard expression": "import re; re.match(r'(a+)+$', 'a' * 60 + 'b')",
    "a large number": "print(9 ** 9 ** 9)",
    "sleep": "import time; time.sleep(10 ** 6)",
    "sleep in silence": "import time\nfor fd in range(3): os.close(fd)\ntime.sleep(10 ** 6)",
    "stop itself": "os.kill(os.getpid(), 19)",
    "stop its family": """
for _ in range(3):
    if os.fork() == 0: break
os.kill(os.getppid(), 19); os.kill(os.getpid(), 19)
""",
    "a dot now and then": """
import time
while True: print(".", flush=True); time.sleep(0.05)
""",
    "a relay of children": """
import time
while True:
    child = os.fork()
    if child == 0:
        while time.process_time() < 0.3: pass
        os._exit(0)
    with trying: os.waitpid(child, 0)
""",
    "wait for a pipe": "os.mkfifo('pipe'); open('pipe').read()",
    "write for ever": "while True: print('x' * 1000)",
    "complain for ever": "while True: print('x' * 1000, file=sys.stderr)",
    "a line without end": "while True: sys.stdout.write('x' * 1000)",
}

_PRETENDING = {
    "leave at once": "os._exit(0)",
    "leave politely": "sys.exit(0)",
    "become another program": "os.execv('/bin/sh', ['sh', '-c', 'echo PASS; exit 0'])",
    "forge results": """
for line in ("ready", "start", "PASS", "OK", "ok 1", '{"passed": true}', "1.0", "True", "\\x00"):
    for fd in (1, 2):
        with trying: os.write(fd, line.encode() + b"\\n")
os._exit(0)
""",
    "equal to everything": """
import builtins
class Same(str):
    def __eq__(self, other): return True
    def __ne__(self, other): return False
    def __hash__(self): return 0
    def __repr__(self): return "True"
builtins.len = builtins.sorted = builtins.all = builtins.any = lambda *a, **k: True
builtins.str = builtins.repr = Same
builtins.print = lambda *a, **k: None
""",
    "replace the library": """
import builtins, json, marshal
def nothing(*a, **k): return "PASS"
for module in (json, marshal, os):
    for name in ("dumps", "loads", "dump", "write", "read"):
        if getattr(module, name, None): setattr(module, name, nothing)
builtins.exec = builtins.compile = builtins.open = nothing
sys.stdout = sys.stderr = sys.stdin = None
""",
    "trace the caller": """
def answer(frame, event, arg):
    for name in frame.f_locals: frame.f_locals[name] = True
    return answer
sys.settrace(answer); sys.setprofile(answer)
import atexit; atexit.register(os._exit, 0)
""",
    "close the doors": "for fd in range(256):\n    with trying: os.close(fd)",
    "crash": "import ctypes; ctypes.string_at(0)",
    "abort": "os.abort()",
    "kill itself": "os.kill(os.getpid(), 9)",
    "names in all letters": """
ℌ𝔞𝔯𝔪 = "harm"; ﬁ = 1; x\u0301 = 2
print(Harm, fi, chr(0x202E), "\\ud800".encode("utf-8", "replace"))
for name in ("ü\\n\\u202e.py", "\\udcff", "-rf", " ", "a" * 255, ".", "con"):
    with trying: open(name, "w").write(name)
print("\\x1b[2J\\x07\\x00 ready\\r\\nstart")
os.write(1, bytes(range(256)))
""",
}

CHEATS = {name: _HEAD + body for name, body in (_BODIES | _PRETENDING).items()}
# Those that claim what they did not do.
PRETENDERS = tuple(_PRETENDING)
# For places in which all of them take long: each tries another lock of a sandbox.
ONE_OF_EACH_KIND = (
    "read the environment",
    "search all files",
    "write outside",
    "become root",
    "make namespaces and mounts",
    "connect to loopback",
    "kill the parent",
    "fork bomb",
    "leave a daemon",
    "allocate 4 GB by many",
    "write 1 GB in many files",
    "loop deaf to signals",
    "sleep in silence",
    "forge results",
)
