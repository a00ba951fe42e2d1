"""A process for each connection: echoes until the end of the stream. Usage: socketserver_echo.py PORT"""
import signal
import socketserver
import sys


class Echo(socketserver.BaseRequestHandler):
    def handle(self):
        while data := self.request.recv(65536):
            self.request.sendall(data)


class Server(socketserver.ForkingTCPServer):
    allow_reuse_address = True
    max_children = 100


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
with Server(("127.0.0.1", int(sys.argv[1])), Echo) as server:
    server.serve_forever()
