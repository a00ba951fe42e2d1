"""echo.py serve HOW PORT | ask HOW PORT: one thread with many connections; HOW is asyncio, epoll, poll or select (of selectors)."""
import asyncio
import os
import selectors
import signal
import socket
import sys

HOST = os.environ.get("ECHO_HOST", "127.0.0.1")
CONNECTIONS, ROUNDS = (int(os.environ.get(f"ECHO_{name}", usual)) for name, usual in (("CONNECTIONS", 20), ("ROUNDS", 40)))
SELECTORS = {"epoll": selectors.EpollSelector, "poll": selectors.PollSelector, "select": selectors.SelectSelector}


def message(connection, turn):
    size = (1, 100, 4096, 70_000, 400_000)[(connection + turn) % 5]
    part = f"{connection}:{turn} ".encode()
    return (part * (size // len(part) + 1))[:size]


async def serve_asyncio(port):
    async def echo(reader, writer):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(echo, HOST, port)
    end = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, end.set_result, None)
    async with server:
        await end


async def ask_asyncio(port):
    async def talk(connection):
        reader, writer = await asyncio.open_connection(HOST, port)
        for turn in range(ROUNDS):
            data = message(connection, turn)
            writer.write(data)
            assert await asyncio.wait_for(reader.readexactly(len(data)), 30) == data
        writer.write_eof()
        assert await reader.read() == b""
        writer.close()

    await asyncio.gather(*(talk(connection) for connection in range(CONNECTIONS)))


class Peer:
    """A nonblocking connection with what is still to be written."""

    def __init__(self, of, sock):
        self.selector, self.socket, self.unsent, self.watched = of, sock, bytearray(), selectors.EVENT_READ
        sock.setblocking(False)
        of.register(sock, self.watched, self)

    def write(self):
        try:
            while self.unsent:
                del self.unsent[: self.socket.send(self.unsent)]
        except BlockingIOError:
            pass
        watched = selectors.EVENT_READ | (selectors.EVENT_WRITE if self.unsent else 0)
        if watched != self.watched:
            self.selector.modify(self.socket, watched, self)
            self.watched = watched

    def read(self):
        """Bytes, b"" at the end, None if there are none now."""
        try:
            return self.socket.recv(65536)
        except BlockingIOError:
            return None

    def close(self):
        self.selector.unregister(self.socket)
        self.socket.close()


def serve_selector(selector, port):
    listener = socket.create_server((HOST, port), backlog=100)
    listener.setblocking(False)
    selector.register(listener, selectors.EVENT_READ)
    while True:
        for key, events in selector.select():
            if key.fileobj is listener:
                Peer(selector, listener.accept()[0])
                continue
            peer = key.data
            if events & selectors.EVENT_READ:
                data = peer.read()
                if data == b"":
                    peer.close()
                    continue
                peer.unsent += data or b""
            peer.write()


def ask_selector(selector, port):
    class Asker(Peer):
        def begin(self, connection, turn):
            self.connection, self.turn, self.expected, self.got = connection, turn, message(connection, turn), bytearray()
            self.unsent += self.expected

    for connection in range(CONNECTIONS):
        sock = socket.socket()
        sock.setblocking(False)
        sock.connect_ex((HOST, port))
        peer = Asker(selector, sock)
        peer.begin(connection, 0)
        selector.modify(sock, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
        peer.watched = selectors.EVENT_READ | selectors.EVENT_WRITE
    done = 0
    while done < CONNECTIONS:
        found = selector.select(30)
        assert found, "nothing comes any more"
        for key, events in found:
            peer = key.data
            if events & selectors.EVENT_WRITE:
                peer.write()
            if events & selectors.EVENT_READ:
                data = peer.read()
                assert data != b"", "the server has ended a connection"
                peer.got += data or b""
                if len(peer.got) < len(peer.expected):
                    continue
                assert peer.got == peer.expected
                if peer.turn + 1 == ROUNDS:
                    peer.close()
                    done += 1
                    continue
                peer.begin(peer.connection, peer.turn + 1)
                peer.write()


def main():
    role, how, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
    if role == "serve":
        if how == "asyncio":
            asyncio.run(serve_asyncio(port))
        else:
            signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
            serve_selector(SELECTORS[how](), port)
    else:
        if how == "asyncio":
            asyncio.run(ask_asyncio(port))
        else:
            ask_selector(SELECTORS[how](), port)
        print(f"{CONNECTIONS} connections, {CONNECTIONS * ROUNDS} echoes")


main()
