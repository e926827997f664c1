"""``python -m hermes_buzz.testing``: a relay to try Hermes on, and you on it.

Prints the settings to put into ``config.toml``; then every line you type is a direct message to the
bot, and what it says is printed. Address and people are the same every time, so that the settings
still fit tomorrow; what was said is forgotten.
"""

from __future__ import annotations

import asyncio
import sys
from hashlib import sha256
from pathlib import Path

from hermes_buzz.testing.people import Person
from hermes_buzz.testing.relay import BuzzRelay

KEY_FILE = Path("buzz-bot.nsec").absolute()
PORT = 4869
BEFORE = """\
# For the settings file: `hermes paths` says where it is. Then `hermes run` in another terminal.
"""
AFTER = """\
# Each line that you type here is a direct message to the bot. Ctrl-C or an empty line ends this.
"""


async def _lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


async def _print_answers(relay: BuzzRelay, bot: Person) -> None:
    while True:
        event = await relay.next_event(bot, 9, 40003)
        edited = " (edited)" if event["kind"] != 9 else ""  # noqa: PLR2004 - a chat message
        sys.stdout.write(f"bot{edited}: {event['content']}\n")
        sys.stdout.flush()


async def _main(bot: Person) -> None:
    you = Person("you", sha256(f"you, {bot.nsec}".encode()).hexdigest())
    async with BuzzRelay(port=PORT) as relay:
        chat = relay.channel("", you, bot, kind="dm")
        sys.stdout.write(
            f'{BEFORE}[platforms.buzz]\nrelay_url = "{relay.url}"\n'
            f'private_key = "file:{KEY_FILE}"\nallowed_users = ["{you.npub}"]\n{AFTER}\n'
        )
        sys.stdout.flush()
        printing = asyncio.create_task(_print_answers(relay, bot))
        lines = await _lines()
        while line := (await lines.readline()).decode().strip():
            await relay.say(you, chat, line)
        printing.cancel()
        await asyncio.wait({printing})


def main() -> None:
    """Until the input ends, or an empty line."""
    known = KEY_FILE.read_text() if KEY_FILE.exists() else ""
    bot = Person("bot", known.strip())
    if not known:
        KEY_FILE.touch(0o600)
        KEY_FILE.write_text(f"{bot.nsec}\n")
    try:
        asyncio.run(_main(bot))
    except KeyboardInterrupt:
        return
    except OSError as error:
        sys.exit(f"port {PORT} of this machine is not to be had: {error.strerror or error}")


if __name__ == "__main__":
    main()
