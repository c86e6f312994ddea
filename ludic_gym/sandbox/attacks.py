"""Programs that attack the guarantees of a sandbox, run by `probes`.

Each gets the arguments FOLDER, PORT, PID and NAME of a `Witness`. The sources of a guarantee are
named by the way in which they attack it.
"""

from collections.abc import Mapping

HEAD = """
import contextlib, ctypes, os, sys, time
FOLDER, PORT, PID, NAME = sys.argv[1:]
trying = contextlib.suppress(Exception)
MIB = bytes(1 << 20)
kept = []
def held(mebibytes): os.write(1, b"held %d\\n" % mebibytes)
def crowd(hold):
    # A dozen processes hold it, until all of them do or have failed.
    come, go = os.pipe()
    count = 0
    with trying:
        while count < 12:
            if os.fork() == 0:
                with trying: hold()
                os.write(go, b"x")
                time.sleep(600)
            count += 1
    for _ in range(count): os.read(come, 1)
    os._exit(0)
"""

NETWORK = {
    "connections": """
import socket
with trying: s = socket.create_connection(("127.0.0.1", int(PORT)), 5)
with trying: s = socket.socket(2, 2); s.connect(("192.0.2.1", 9)); print("found a route")
print("tried")
"""
}

FILESYSTEM = {
    "files": """
with trying: print(open(FOLDER + "/secret").read())
with trying: print(os.environ)
with trying: print(open("/etc/passwd").read())
for pid in (PID, str(os.getppid())):
    with trying: print(open(f"/proc/{pid}/environ").read())
with trying: open(FOLDER + "/planted", "w").close()
with trying: os.chmod(FOLDER, 0o700)
with trying: os.remove(FOLDER + "/secret")
print("tried")
"""
}

# Children inherit the name, by which processes that outlive the program are found.
PROCESSES = {
    "processes": """
import ctypes
ctypes.CDLL(None).prctl(15, NAME.encode())
with trying: os.kill(int(PID), 9)
count = 0
with trying:
    for _ in range(200):
        if os.fork() == 0:
            os.setsid()
            for fd in range(3): os.close(fd)
            time.sleep(30)
        count += 1
print("forks", count, flush=True)
os._exit(0)
"""
}

# Each tries to hold 384 MiB or more.
MEMORY: Mapping[str, str] = {
    "private memory": """
def hold(): kept.append(b"x" * (32 << 20)); held(32)
crowd(hold)
""",
    "shared anonymous memory": """
import mmap
def hold():
    kept.append(mmap.mmap(-1, 32 << 20))
    for _ in range(32): kept[-1].write(MIB); held(1)
crowd(hold)
""",
    "files without a name": """
fd = os.memfd_create("x")
for _ in range(1024): held(os.write(fd, MIB) >> 20)
""",
    "files in memory": """
for folder in (".", "/tmp", "/dev/shm", "/run", "/dev"):
    for i in range(128):
        name = f"{folder}/{NAME}{len(folder)}-{i}"
        with trying, open(name, "wb", 0) as file: held(file.write(MIB) >> 20)
""",
    "empty files": """
for i in range(1 << 20):
    os.mkdir(f"{NAME}-{i}")
    i % 1024 or held(1)
""",
    "shared memory of System V": """
libc = ctypes.CDLL(None)
libc.shmat.restype = ctypes.c_void_p
for _ in range(32):
    one = libc.shmget(0, 32 << 20, 0o1600)
    if one < 0: break
    where = ctypes.c_void_p(libc.shmat(one, None, 0))
    ctypes.memset(where, 1, 32 << 20)
    libc.shmdt(where)
    kept.append(one)
    held(32)
for one in kept: libc.shmctl(one, 0, None)
""",
    "messages of System V": """
libc = ctypes.CDLL(None)
text = ctypes.create_string_buffer(b"1", 8 + 8192)
for i in range(32000):
    queue = libc.msgget(0, 0o1600)
    if queue < 0: break
    kept.append(queue)
    for _ in range(2): libc.msgsnd(queue, text, 8192, 0o4000)
    i % 64 or held(1)
for queue in kept: libc.msgctl(queue, 0, None)
""",
    "buffers of sockets": """
import socket
def hold():
    full = told = 0
    while full < 32 << 20:
        for one in socket.socketpair():
            kept.append(one)
            with trying: one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
            one.setblocking(False)
            with trying:
                while True: full += one.send(MIB[:65536])
            held((full >> 20) - told)
            told = full >> 20
crowd(hold)
""",
}

CPU: Mapping[str, str] = {
    "a loop": "while True: pass",
    "a loop deaf to signals": """
import signal
for number in set(signal.Signals) - {9, 19}:
    with trying: signal.signal(number, signal.SIG_IGN)
while True: pass
""",
    "sleep": "time.sleep(600)",
    "a stop": "os.kill(os.getpid(), 19)",
    "a pipe without a writer": "os.mkfifo('pipe'); open('pipe').read()",
}

DISK = {
    "files": """
total = 0
for where in (".", "/tmp", "/dev/shm", "/var/tmp", FOLDER):
    for i in range(64):
        name = f"{where}/{NAME}{len(where)}-{i}"
        with trying, open(name, "wb", 0) as file: total += file.write(bytes(1 << 20))
print("wrote", total)
"""
}
