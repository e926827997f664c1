"""Verify a webhook of Hermes. Run it: `SECRET=... python receiver.py 8000`."""

import hashlib
import hmac
import os
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer


class Receiver(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        right = hmac.new(os.environ["SECRET"].encode(), body, hashlib.sha256).hexdigest()
        given = self.headers.get("X-Hermes-Signature-256", "").split(", ")
        known = any(hmac.compare_digest(one.encode(), f"sha256={right}".encode()) for one in given)
        self.send_response(204 if known else 401)
        self.end_headers()


HTTPServer(("127.0.0.1", int(sys.argv[1])), Receiver).serve_forever()
