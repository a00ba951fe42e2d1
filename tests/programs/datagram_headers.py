"""The bytes of the wire protocol that come by the kernel's socket: a program gets what is behind a header, and nothing of control messages.

Runs preloaded; the peer is a plain program, which sends what it is told to. Prints "all right" at the end."""
import array, errno, fcntl, os, select, socket, struct, subprocess, sys, termios, threading, time

PEER = r"""
import socket, struct, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("127.0.0.1", 0))
to = ("127.0.0.1", int(sys.argv[1]))
def header(operation, tag=0x55555555, length=16):
    return struct.pack(">IBBBBI4s", tag, 4, operation, length, 0, 0x77, socket.inet_aton("127.0.0.1"))
print(s.getsockname()[1], flush=True)
for line in sys.stdin:
    word, _, text = line.rstrip("\n").partition(" ")
    if word == "close":
        name = s.getsockname()
        s.close()
    elif word == "open":
        s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        s.bind(name)
    else:
        s.sendto({"data": header(0), "control": header(7), "plain": b"", "strange": header(0, length=17), "other": header(3)}[word] + text.encode(), to)
    print("sent", flush=True)
"""


SO_TIMESTAMP = 29


class Peer:
    def __init__(self, port):
        env = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen([sys.executable, "-c", PEER, str(port)], stdin=pipe, stdout=pipe, text=True, env=env)
        self.address = ("127.0.0.1", int(self.process.stdout.readline()))

    def send(self, *lines):
        for line in lines:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
            assert self.process.stdout.readline() == "sent\n"


def pending(sock):
    count = array.array("i", [0])
    fcntl.ioctl(sock, termios.FIONREAD, count)
    return count[0]


def nothing(sock):
    try:
        return sock.recv(100, socket.MSG_DONTWAIT)
    except OSError as error:
        assert error.errno == errno.EAGAIN, error


def polled(sock, time=20):
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return [event for _, event in poll.poll(time)]


def by_call(sock, peer):
    peer.send("data hello")
    assert polled(sock, 20000) == [select.POLLIN]
    assert pending(sock) == 5, pending(sock)
    assert sock.recvfrom(100, socket.MSG_PEEK) == (b"hello", peer.address)
    assert len(sock.recv(2, socket.MSG_PEEK | socket.MSG_TRUNC)) == 5
    assert sock.recvfrom(100) == (b"hello", peer.address)
    assert nothing(sock) is None and pending(sock) == 0
    peer.send("data abcdef")
    data, _, flags, source = sock.recvmsg(3)
    assert (data, flags & socket.MSG_TRUNC, source) == (b"abc", socket.MSG_TRUNC, peer.address)
    peer.send("data abcdefgh")
    parts = [bytearray(1), bytearray(0), bytearray(2), bytearray(50)]
    count, _, flags, _ = sock.recvmsg_into(parts)
    assert (count, flags, bytes(parts[0] + parts[2] + parts[3][:5])) == (8, 0, b"abcdefgh"), (count, flags, parts)
    peer.send("data ", "plain 0123456789", "data " + "x" * 3000)
    assert (sock.recv(10), sock.recv(4), sock.recv(9000)) == (b"", b"0123", b"x" * 3000)
    peer.send("data zero")
    data, _, flags, _ = sock.recvmsg(0)
    assert (data, flags) == (b"", socket.MSG_TRUNC) and nothing(sock) is None
    # What only looks like a header is the program's.
    for word in ["strange", "other"]:
        peer.send(word + " text")
        data = sock.recv(100)
        assert len(data) == 20 and data.startswith(b"UUUU") and data.endswith(b"text"), data


def controls(sock, peer):
    """No event says that there is something, and no call waits for it or shows it."""
    for before in [[], ["control"], ["control"] * 3]:
        peer.send("control", *before)
        assert polled(sock) == [], before
        peer.send("control", *before)
        assert select.select([sock], [], [], 0.02)[0] == [], before
        peer.send("control", *before)
        room = bytearray(b"untouched, all of these bytes")
        try:
            sock.recv_into(room, 0, socket.MSG_DONTWAIT)
            raise AssertionError("a control message was received")
        except BlockingIOError:
            assert room == b"untouched, all of these bytes", room
        peer.send("control", *before)
        assert pending(sock) == 0
        peer.send("control", *before)
        try:
            sock.recv(100, socket.MSG_PEEK | socket.MSG_DONTWAIT)
            raise AssertionError("a control message was seen")
        except BlockingIOError:
            pass
        peer.send("control", *before, "plain behind")
        assert polled(sock, 20000) == [select.POLLIN] and sock.recv(100) == b"behind"


def by_epoll(sock, peer):
    for flags in [0, select.EPOLLET, select.EPOLLONESHOT]:
        epoll = select.epoll()
        epoll.register(sock, select.EPOLLIN | flags)
        peer.send("control")
        assert epoll.poll(0.02) == [] and epoll.poll(0) == [], flags
        peer.send("control", "data seen")
        assert epoll.poll(20) == [(sock.fileno(), select.EPOLLIN)], flags
        assert epoll.poll(0) == ([(sock.fileno(), select.EPOLLIN)] if flags == 0 else []), flags
        assert sock.recv(100) == b"seen"
        epoll.close()


def asleep(sock, peer):
    """A thread that waits is not woken for them."""
    found = []
    for wait in [lambda: sock.recv(100), lambda: (polled(sock, 20000), sock.recv(100))[1]]:
        thread = threading.Thread(target=lambda: found.append(wait()))
        thread.start()
        peer.send("control")
        thread.join(0.05)
        assert thread.is_alive() and not found
        peer.send("control", "data awake")
        thread.join(20)
        assert found == [b"awake"], found
        found.clear()


def times(control):
    return [kind for _, kind, _ in control]


def left_to_the_kernel(sock, peer):
    """By an option: what the kernel adds comes with what the library takes away."""
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 1)
    for word in ["data", "plain"]:
        peer.send("control", f"{word} timed", "control")
        data, control, flags, source = sock.recvmsg(100, 200)
        assert (data, times(control), flags, source) == (b"timed", [SO_TIMESTAMP], 0, peer.address), (data, control, flags)
    peer.send("data cut, and its time, too")
    data, control, flags, _ = sock.recvmsg(3, 5)
    assert (data, flags) == (b"cut", socket.MSG_TRUNC | socket.MSG_CTRUNC), (data, flags)
    peer.send("control", "data pending")
    assert pending(sock) == 7 and sock.recv(100, socket.MSG_PEEK) == b"pending" and sock.recv(3) == b"pen"
    sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMP, 0)
    by_call(sock, peer)
    controls(sock, peer)
    by_epoll(sock, peer)
    asleep(sock, peer)
    sock.settimeout(0.05)
    peer.send("control")
    try:
        sock.recv(100)
        raise AssertionError("a control message was received")
    except TimeoutError:
        sock.settimeout(None)


def forked(sock, peer):
    """Parent and child both have the socket."""
    copy = os.dup(sock.fileno())
    child = os.fork()
    if child == 0:
        status = 1
        try:
            for number in [sock.fileno(), copy]:
                mine = socket.socket(fileno=number)
                peer.send("control", "data the child's")
                assert polled(mine, 20000) == [select.POLLIN] and pending(mine) == 11
                assert mine.recvfrom(100) == (b"the child's", peer.address)
                controls(mine, peer)
                by_epoll(mine, peer)
                mine.detach()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    os.close(copy)
    by_call(sock, peer)
    controls(sock, peer)


EXECUTED = r"""
import socket, sys
mine = socket.socket(fileno=int(sys.argv[1]))
assert mine.recv(100) == b"for another program" and mine.recv(100) == b"plain"
"""


def executed(sock, peer):
    peer.send("data for another program", "control", "plain plain")
    subprocess.run([sys.executable, "-c", EXECUTED, str(sock.fileno())], pass_fds=[sock.fileno()], check=True, timeout=60)


def errors(peer):
    """An error that waits in the socket is the program's, whatever the library has looked at."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    own = Peer(sock.getsockname()[1])
    sock.connect(own.address)

    def refused():
        own.send("close")
        sock.send(b"to nobody")
        own.send("open", "control", "data somebody again")

    refused()
    assert polled(sock, 20000) == [select.POLLIN | select.POLLERR]
    assert polled(sock, 20000) == [select.POLLIN | select.POLLERR], "it stays"
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
    assert polled(sock, 20000) == [select.POLLIN] and sock.recv(100) == b"somebody again"
    for call in [lambda: sock.send(b"x"), lambda: sock.recv(100), lambda: sock.recv(100, socket.MSG_PEEK)]:
        refused()
        assert pending(sock) == 14
        try:
            call()
            raise AssertionError("the error is lost")
        except ConnectionRefusedError:
            assert sock.recv(100) == b"somebody again" and nothing(sock) is None
    epoll = select.epoll()
    epoll.register(sock, select.EPOLLIN | select.EPOLLET)
    refused()
    found = 0
    while not (found & select.EPOLLERR and found & select.EPOLLIN):
        events = epoll.poll(20)
        assert events
        found |= events[0][1]
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED and sock.recv(100) == b"somebody again"
    own.process.stdin.close()
    assert own.process.wait() == 0


def readers(sock, peer):
    """Control messages that one thread takes off cost another one nothing."""
    count, got, over = 600, [], threading.Event()

    def read():
        while not over.is_set():
            polled(sock, 10)
            try:
                got.append(sock.recv(100, socket.MSG_DONTWAIT))
            except BlockingIOError:
                pass

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(count):
        peer.send("control", f"data {number}")
    for _ in range(2000):
        if len(got) >= count:
            break
        time.sleep(0.01)
    over.set()
    for thread in threads:
        thread.join()
    assert sorted(got, key=int) == [str(number).encode() for number in range(count)], len(got)


def main():
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    peer = Peer(sock.getsockname()[1])
    for part in [by_call, controls, by_epoll, asleep, readers, left_to_the_kernel, forked, executed]:
        part(sock, peer)
        print(part.__name__, "right")
    errors(peer)
    peer.process.stdin.close()
    assert peer.process.wait() == 0
    print("all right")


main()
