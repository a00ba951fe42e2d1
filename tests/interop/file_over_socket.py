"""A file over Python's socket module, and its checksum on the standard output.

file_over_socket.py listen|connect send|receive ADDRESS PORT FILE"""

import hashlib
import socket
import sys

role, direction, address, port, path = sys.argv[1:]
family = socket.AF_INET6 if ":" in address else socket.AF_INET

if role == "listen":
    with socket.create_server((address, int(port)), family=family) as listener:
        connection, _ = listener.accept()
else:
    connection = socket.create_connection((address, int(port)), timeout=30)

checksum = hashlib.sha256()
with connection:
    if direction == "send":
        with open(path, "rb") as file:
            while block := file.read(100_000):
                connection.sendall(block)
                checksum.update(block)
        connection.shutdown(socket.SHUT_WR)
        connection.recv(1)
    else:
        with open(path, "wb") as file, connection.makefile("rb") as stream:
            while block := stream.read(50_000):
                file.write(block)
                checksum.update(block)
print(role, direction, checksum.hexdigest())
