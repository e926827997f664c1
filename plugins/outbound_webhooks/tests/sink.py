"""An HTTP server of its own process that answers as the path says and reports what it was sent.

Every request is one JSON line on the standard output. The path is ``/NAME/ANSWERS``: a list of
answers, one for each request to that path, the last one repeated. An answer is a status, with
``;6`` a Retry-After of six seconds and with ``;d6`` the same as a date, or a word of `Sink.odd`.
"""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import sys
import time
from collections import Counter
from email.utils import formatdate
from urllib.parse import unquote


class Sink:
    def __init__(self) -> None:
        self.seen: Counter[str] = Counter()
        self.port = 0
        self.odd = {
            "reset": self.reset,
            "hang": self.hang,
            "slowhead": self.slow_head,
            "slowbody": self.slow_body,
            "hugebody": self.huge_body,
            "hugehead": self.huge_head,
        }

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self.one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = head.decode("latin-1").split("\r\n")
        path = lines[0].split(" ")[1]
        headers = [line.split(": ", 1) for line in lines[1:] if line]
        length = int({name.lower(): value for name, value in headers}.get("content-length", "0"))
        body = await reader.readexactly(length)
        say(
            path=path,
            line=lines[0],
            headers=headers,
            body=base64.b64encode(body).decode(),
            time=time.time(),
        )
        answers = path.split("?")[0].rsplit("/", 1)[1].split(",")
        answer = answers[min(self.seen[path], len(answers) - 1)]
        self.seen[path] += 1
        if answer in self.odd:
            return await self.odd[answer](writer)
        await self.plain(writer, answer, path)
        return True

    async def plain(self, writer: asyncio.StreamWriter, answer: str, path: str) -> None:
        status, _, wait = answer.partition(";")
        lines = [f"HTTP/1.1 {status} Said", "Content-Length: 2"]
        if status in ("204", "304"):
            lines.pop()
        if wait.startswith("d"):
            lines.append(f"Retry-After: {formatdate(time.time() + int(wait[1:]), usegmt=True)}")
        elif wait:
            lines.append(f"Retry-After: {unquote(wait)}")
        if status.startswith("3"):
            lines.append(f"Location: {path.partition('?to=')[2] or path}")
        writer.write("\r\n".join([*lines, "", "" if status in ("204", "304") else "ok"]).encode())
        await writer.drain()

    async def reset(self, writer: asyncio.StreamWriter) -> bool:
        return False

    async def hang(self, writer: asyncio.StreamWriter) -> bool:
        await asyncio.Event().wait()
        return False

    async def slow_head(self, writer: asyncio.StreamWriter) -> bool:
        for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n" + b"X: y\r\n" * 1000:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0.2)
        return False

    async def slow_body(self, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.2)

    async def huge_body(self, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")
            await writer.drain()

    async def huge_head(self, writer: asyncio.StreamWriter) -> bool:
        writer.write(b"HTTP/1.1 200 OK\r\n")
        while True:
            writer.write(b"X-Much: " + b"x" * 4096 + b"\r\n")
            await writer.drain()


def say(**values: object) -> None:
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


async def main() -> None:
    sink = Sink()
    context = None
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(sys.argv[1])
    server = await asyncio.start_server(sink.serve, "127.0.0.1", 0, ssl=context, limit=1 << 20)
    say(port=server.sockets[0].getsockname()[1])
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
