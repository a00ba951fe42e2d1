"""Small servers of the standard library with their clients, in one process and in several: run by tests/cpython.rs as CPython's own."""
import contextlib
import http.client
import http.server
import multiprocessing
import multiprocessing.connection
import multiprocessing.managers
import os
import pathlib
import signal
import socket
import socketserver
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.request
import xmlrpc.client
import xmlrpc.server

HOST = "127.0.0.1"
SECONDS = 10
LARGE = b"x" * 300_000
KEY = b"key"
TEXT = b"hello\n" * 50_000
CURL = ["curl", "-sS", "--noproxy", "*", "--max-time", str(SECONDS)]


@contextlib.contextmanager
def serving(server):
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield server.server_address
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextlib.contextmanager
def pair():
    """A connection of this process with itself: the connecting and the accepted end."""
    with socket.create_server((HOST, 0)) as listener, socket.create_connection(listener.getsockname(), SECONDS) as client:
        server, _ = listener.accept()
        server.settimeout(SECONDS)
        with server:
            yield client, server


class Upper(socketserver.StreamRequestHandler):
    def handle(self):
        for line in self.rfile:
            self.wfile.write(line.upper())


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass




def say(address):
    with multiprocessing.connection.Client(address, authkey=KEY) as connection:
        connection.send("from the child")
        connection.recv()


def square(number):
    return number * number


class Manager(multiprocessing.managers.BaseManager):
    pass


Manager.register("square", callable=square)


class Servers(unittest.TestCase):
    def converse(self, address):
        with socket.create_connection(address, SECONDS) as client, client.makefile("rwb") as stream:
            for line in (b"one\n", b"two\n", LARGE + b"\n"):
                stream.write(line)
                stream.flush()
                self.assertEqual(stream.readline(), line.upper())
            # A child that was forked meanwhile may have the descriptor too.
            client.shutdown(socket.SHUT_WR)
            self.assertEqual(stream.read(), b"")

    def test_threading_tcp_server(self):
        with serving(socketserver.ThreadingTCPServer((HOST, 0), Upper)) as address:
            for _ in range(3):
                self.converse(address)

    def test_forking_tcp_server(self):
        with serving(socketserver.ForkingTCPServer((HOST, 0), Upper)) as address:
            for _ in range(3):
                self.converse(address)

    def test_forking_tcp_server_that_has_forked(self):
        # The first connection may be lost: see differences.txt. From the second on all is well.
        with serving(socketserver.ForkingTCPServer((HOST, 0), Upper)) as address:
            with contextlib.suppress(OSError, AssertionError):
                self.converse(address)
            for _ in range(3):
                self.converse(address)

    def test_xmlrpc(self):
        server = xmlrpc.server.SimpleXMLRPCServer((HOST, 0), logRequests=False)
        server.register_function(lambda a, b: a + b, "add")
        server.register_multicall_functions()
        with serving(server) as (host, port), xmlrpc.client.ServerProxy(f"http://{host}:{port}") as proxy:
            self.assertEqual(proxy.add(2, 3), 5)
            self.assertEqual(proxy.add(LARGE.decode(), "y"), LARGE.decode() + "y")
            calls = xmlrpc.client.MultiCall(proxy)
            calls.add(1, 1)
            calls.add(2, 2)
            self.assertEqual(list(calls()), [2, 4])

    def test_http_clients(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "file").write_bytes(TEXT)
            server = http.server.ThreadingHTTPServer((HOST, 0), lambda *request: Quiet(*request, directory=folder))
            with serving(server) as (host, port):
                url = f"http://{host}:{port}/file"
                with urllib.request.urlopen(url, timeout=SECONDS) as response:
                    self.assertEqual(response.read(), TEXT)
                client = http.client.HTTPConnection(host, port, timeout=SECONDS)
                client.request("GET", "/none")
                self.assertEqual(client.getresponse().status, 404)
                client.close()
                self.assertEqual(subprocess.run([*CURL, url], stdout=subprocess.PIPE, check=True).stdout, TEXT)

    def test_http_server_as_a_program(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "file").write_bytes(TEXT)
            command = [sys.executable, "-u", "-m", "http.server", "--bind", HOST, "--directory", folder, "0"]
            with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
                try:
                    url = server.stdout.readline().partition("(")[2].partition(")")[0] + "file"
                    for _ in range(3):
                        self.assertEqual(subprocess.run([*CURL, url], stdout=subprocess.PIPE, check=True).stdout, TEXT)
                finally:
                    server.send_signal(signal.SIGINT)
                self.assertEqual(server.wait(SECONDS), 0)


class Processes(unittest.TestCase):
    def test_connection_of_threads(self):
        def client(address):
            with multiprocessing.connection.Client(address, authkey=KEY) as connection:
                connection.send({"a": [1, 2, 3]})
                connection.send_bytes(LARGE)
                if connection.poll(SECONDS):
                    connection.send(connection.recv())

        with multiprocessing.connection.Listener((HOST, 0), authkey=KEY) as listener:
            thread = threading.Thread(target=client, args=(listener.address,))
            thread.start()
            with listener.accept() as connection:
                self.assertEqual(connection.recv(), {"a": [1, 2, 3]})
                self.assertEqual(connection.recv_bytes(), LARGE)
                connection.send("answer")
                self.assertEqual(multiprocessing.connection.wait([connection], SECONDS), [connection])
                self.assertEqual(connection.recv(), "answer")
            thread.join()

    def connection_of(self, method):
        context = multiprocessing.get_context(method)
        with multiprocessing.connection.Listener((HOST, 0), authkey=KEY) as listener:
            process = context.Process(target=say, args=(listener.address,))
            process.start()
            with listener.accept() as connection:
                self.assertEqual(connection.recv(), "from the child")
                connection.send(None)
            process.join(SECONDS)
            self.assertEqual(process.exitcode, 0)

    def test_connection_of_forked_process(self):
        self.connection_of("fork")

    def test_connection_of_spawned_process(self):
        self.connection_of("spawn")

    def test_connection_of_fork_servers_process(self):
        self.connection_of("forkserver")

    def test_manager(self):
        with Manager(address=(HOST, 0), authkey=KEY) as manager:
            self.assertEqual(manager.square(7)._getvalue(), 49)

    def test_connection_goes_on_in_the_parent(self):
        with pair() as (client, server):
            for number in range(5):
                client.sendall(b"to %d" % number)
                self.assertEqual(server.recv(10), b"to %d" % number)
                subprocess.run(["true"], check=True)
                child = os.fork()
                if child == 0:
                    os._exit(0)
                os.waitpid(child, 0)
                server.sendall(b"from %d" % number)
                self.assertEqual(client.recv(10), b"from %d" % number)
            client.close()
            self.assertEqual(server.recv(10), b"")


class Passed(unittest.TestCase):
    """Descriptors that another program gets."""

    def python(self, code, descriptor):
        words = [sys.executable, "-c", f"import socket, sys\nown = socket.socket(fileno=int(sys.argv[1]))\n{code}", str(descriptor)]
        return subprocess.Popen(words, pass_fds=[descriptor], stderr=subprocess.DEVNULL)

    def test_listener(self):
        with socket.create_server((HOST, 0)) as listener:
            address = listener.getsockname()
            child = self.python("peer, _ = own.accept()\npeer.sendall(b'heard ' + peer.recv(100))\npeer.close()", listener.fileno())
        with child, socket.create_connection(address, SECONDS) as client:
            client.sendall(b"this")
            self.assertEqual(client.recv(100), b"heard this")
        self.assertEqual(child.returncode, 0)

    def test_connection(self):
        with pair() as (client, server):
            with self.python("own.sendall(b'from the child')", client.fileno()) as child:
                client.close()
            self.assertEqual((child.returncode, server.recv(100)), (0, b"from the child"))

    def test_standard_streams(self):
        with pair() as (client, server):
            # cat does not know what to do about EAGAIN
            server.setblocking(True)
            with subprocess.Popen(["cat"], stdin=server, stdout=server, stderr=subprocess.DEVNULL) as child:
                server.close()
                client.sendall(b"through cat")
                client.shutdown(socket.SHUT_WR)
                self.assertEqual(client.recv(100), b"through cat")
            self.assertEqual(child.returncode, 0)


if __name__ == "__main__":
    unittest.main()
