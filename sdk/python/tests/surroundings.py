"""What tests stand on: a workspace, and a server of the host whose visitors are counted."""

import http.server
import os
import tempfile
import threading
import unittest
from typing import List


class InWorkspace(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ringfence-sdk-workspace-")
        self.addCleanup(folder.cleanup)
        self.workspace = os.path.join(folder.name, "workspace")
        os.mkdir(self.workspace)
        #: Beside the workspace: a file of the host that nobody inside may see or change.
        self.outside = os.path.join(folder.name, "outside.txt")
        self.write(self.outside, "of the host\n")

    @staticmethod
    def write(path: str, text: str) -> None:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)

    @staticmethod
    def read(path: str) -> str:
        with open(path, encoding="utf-8") as file:
            return file.read()


class Server:
    """A server on loopback. What arrived is the proof, not what a program says about it."""

    def __init__(self) -> None:
        self.visits: List[str] = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.visits.append(self.path)
                self.send_response(200)
                self.send_header("content-length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            do_POST = do_GET

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._server.server_address[1]
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def probe(self, path: str) -> str:
        """Python code that visits the server."""
        return f"import urllib.request\nurllib.request.urlopen('http://127.0.0.1:{self.port}{path}', timeout=5).read()\n"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
