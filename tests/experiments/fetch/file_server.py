"""A server of files in this process, whose answers a test chooses."""

import hashlib
import http.server
import os
import threading
import time

TEXT = "".join(f"{i}\tline {i * i}\n" for i in range(20_000)).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `server.files`; what `server.ways` has under a path happens to its requests in turn.

    cut: half of what is left; stall: half, and nothing more; slow: in small blocks; a number: that
    status; a text: a redirect to it.
    """

    protocol_version = "HTTP/1.1"

    def do_GET(self):
        ways = self.server.ways.get(self.path, [])
        way = ways.pop(0) if ways else ""
        self.server.requests.append((self.path, self.headers.get("Range"), way))
        if isinstance(way, int):
            return self._say(way, {"Retry-After": "0"})
        if way.startswith("http"):
            return self._say(302, {"Location": way})
        if self.path not in self.server.files:
            return self._say(404, {})
        data, version = self.server.files[self.path]
        start = int((self.headers.get("Range") or "bytes=0-")[6:-1])
        fresh = self.headers.get("If-Range", version) == version
        if start and fresh and start >= len(data):
            return self._say(416, {"Content-Range": f"bytes */{len(data)}"})
        start = start * fresh * (way != "whole")
        headers = {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"} if start else {}
        headers |= {"ETag": version} if version else {}
        return self._send(206 if start else 200, headers, data[start:], way)

    def _say(self, status, headers):
        self._send(status, headers, b"", "")

    def _send(self, status, headers, data, way):
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(data))}.items():
            self.send_header(key, value)
        self.end_headers()
        if way in ("cut", "stall"):
            self.wfile.write(data[: len(data) // 2])
            self.wfile.flush()
            if way == "stall":
                self.server.released.wait(5)
            self.close_connection = True
        elif way == "slow":
            for i in range(0, len(data), 2**16):
                self.wfile.write(data[i : i + 2**16])
                time.sleep(0.01)
        else:
            self.wfile.write(data)

    def log_message(self, *arguments):
        pass


class Server(http.server.ThreadingHTTPServer):
    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.ways, self.requests = {}, {}, []
        self.released = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, *arguments):
        pass  # a client that goes away


def sha256(data):
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def names(folder):
    return sorted(os.listdir(folder))
