"""Two ends of datagrams: `server PORT [COUNT]`, `client PORT COUNT`, `asyncio-server PORT`, `asyncio-client PORT COUNT`, `patient PORT [COUNT]`.

A server answers each datagram with its bytes reversed, until one says "end". A client checks the answers. The patient client is connected,
and tells of each error and each new server; after COUNT of these it asks some more times, and ends the server.
"""

import asyncio
import os
import socket
import sys
import time

ROLE, PORT = sys.argv[1], int(sys.argv[2])
COUNT = int(sys.argv[3]) if len(sys.argv) > 3 else 0
WHERE = (os.environ.get("DATAGRAM_HOST", "127.0.0.1"), PORT)
SIZES = [0, 1, 100, 1472, 2040, 9000, 40000]


# An empty datagram is nothing that asyncio sends.
if ROLE.startswith("asyncio"):
    SIZES.remove(0)


def payload(number):
    return bytes((number + at) & 255 for at in range(SIZES[number % len(SIZES)]))


def server():
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind(WHERE)
    print("ready", flush=True)
    answered = 0
    while True:
        data, source = own.recvfrom(70000)
        if data == b"end":
            break
        own.sendto(data[::-1], source)
        answered += 1
    print("answered", answered)


def client():
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.settimeout(20)
    for number in range(COUNT):
        own.sendto(payload(number), WHERE)
        data, source = own.recvfrom(70000)
        assert source == WHERE, source
        assert data == payload(number)[::-1], number
    own.sendto(b"end", WHERE)
    print("right", COUNT)


class Echo(asyncio.DatagramProtocol):
    def __init__(self, done):
        self.done, self.answered = done, 0

    def connection_made(self, transport):
        self.transport = transport
        print("ready", flush=True)

    def datagram_received(self, data, source):
        if data == b"end":
            self.done.set_result(None)
            return
        self.answered += 1
        self.transport.sendto(data[::-1], source)


class Asker(asyncio.DatagramProtocol):
    def __init__(self, done):
        self.done, self.number = done, 0

    def connection_made(self, transport):
        self.transport = transport
        transport.sendto(payload(1))

    def datagram_received(self, data, source):
        assert source == WHERE and data == payload(2 * self.number + 1)[::-1]
        self.number += 1
        if self.number == COUNT:
            self.transport.sendto(b"end")
            self.done.set_result(None)
        else:
            self.transport.sendto(payload(2 * self.number + 1))


async def asyncio_server():
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    transport, echo = await loop.create_datagram_endpoint(lambda: Echo(done), local_addr=WHERE)
    await asyncio.wait_for(done, 60)
    print("answered", echo.answered)
    transport.close()


async def asyncio_client():
    loop = asyncio.get_running_loop()
    done = loop.create_future()
    transport, asker = await loop.create_datagram_endpoint(lambda: Asker(done), remote_addr=WHERE)
    await asyncio.wait_for(done, 60)
    print("right", asker.number)
    transport.close()


def patient():
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.connect(WHERE)
    own.settimeout(0.2)
    before, changes, more = None, 0, 20
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            own.send(b"anybody?")
            own.recv(100)
            now = "served"
        except ConnectionRefusedError:
            now = "refused"
        except TimeoutError:
            continue
        if now != before:
            print(now, flush=True)
            changes += 1
        before = now
        if COUNT and changes >= COUNT:
            more -= 1
            if more == 0:
                own.send(b"end")
                return
        time.sleep(0.01)


if ROLE == "server":
    server()
elif ROLE == "client":
    client()
elif ROLE == "asyncio-server":
    asyncio.run(asyncio_server())
elif ROLE == "asyncio-client":
    asyncio.run(asyncio_client())
else:
    patient()
