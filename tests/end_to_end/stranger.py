"""A stranger who throws bytes at a job's listening sockets; hostile_streams_test.py runs it beside a job.

    stranger.py KEY RATE SEED

On standard input, one JSON object a line: {"targets": [...], "streams": N}, each target a TCP port of 127.0.0.1 or
the name of an abstract Unix socket. It throws N streams, at most RATE a second, and answers with a line: when it began
and ended (CLOCK_MONOTONIC), and how many streams came to which end. KEY is the job's: whoever makes a proof one bit
away from a true one, or says a true one twice, has to know it.
"""

import asyncio
import collections
import hashlib
import hmac
import itertools
import json
import os
import random
import resource
import struct
import sys
import time

# core/net/authentication.h.
MAGIC = 0x64766802
CHALLENGE_BYTES = 40
PURPOSES = {"store": 1, "control": 2, "data": 3, "shared_memory": 4}

AT_ONCE = 64  # streams under way
HELD = 300  # connections of those who say nothing, or a byte a second: as many at most
TIMEOUT = 5  # seconds in which a stranger must be dropped who is not waited for


def proof_of(key, challenge, purpose, rank, nonce):
    """What a rank says to show that it knows the key, were it asked with this challenge."""
    statement = b"hvd handshake: client" + challenge[8:40] + nonce + struct.pack("<Ii", purpose, rank)
    return struct.pack("<IIi", MAGIC, purpose, rank) + nonce + hmac.new(key, statement, hashlib.sha512).digest()[:32]


def flip(data, rng):
    position = rng.randrange(8 * len(data))
    flipped = bytearray(data)
    flipped[position // 8] ^= 1 << (position % 8)
    return bytes(flipped)


class Streams:
    """What to say to whoever sent a challenge. None of it is a proof that this challenge asks for."""

    def __init__(self, key, seed):
        self.key = key
        self.rng = random.Random(seed)
        self.recorded = None
        self.kinds = itertools.cycle(
            [
                *(self.noise, self.magic_and_noise, self.wrong_key, self.flipped, self.replayed, self.cut_short),
                *(self.oversized, self.zeros, self.another_protocol, self.nothing),
            ]
        )

    def proof(self, challenge, key=None):
        purpose = self.rng.choice(list(PURPOSES.values()))
        return proof_of(key or self.key, challenge, purpose, self.rng.randrange(-2, 6), self.rng.randbytes(32))

    def next(self, challenge):
        kind = next(self.kinds)
        return kind.__name__, kind(challenge)

    def noise(self, challenge):
        return self.rng.randbytes(self.rng.randrange(1, 4096))

    def magic_and_noise(self, challenge):
        return struct.pack("<I", self.rng.choice([MAGIC, MAGIC - 1])) + self.rng.randbytes(self.rng.randrange(200))

    def wrong_key(self, challenge):
        return self.proof(challenge, self.rng.randbytes(32))

    def flipped(self, challenge):
        return flip(self.proof(challenge), self.rng)

    def replayed(self, challenge):
        earlier, self.recorded = self.recorded, self.proof(challenge)
        return earlier or flip(self.recorded, self.rng)

    def cut_short(self, challenge):
        proof = self.proof(challenge)
        return proof[: self.rng.randrange(1, len(proof))]

    def oversized(self, challenge):
        lengths = struct.pack("<IIQ", 0x64766801, 0xFFFFFFFF, (1 << 64) - 1)
        return flip(self.proof(challenge), self.rng) + lengths + self.rng.randbytes(100_000)

    def zeros(self, challenge):
        return bytes(self.rng.randrange(1, 1000))

    def another_protocol(self, challenge):
        return self.rng.choice(
            [
                b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00",
                b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + self.rng.randbytes(505),
                b"SSH-2.0-OpenSSH_9.2\r\n",
                b"\x80\x04\x95" + b"cposix\nsystem\n(S'true'\ntR.",
            ]
        )

    def nothing(self, challenge):
        return b""


class Stranger:
    def __init__(self, streams, rate):
        self.streams = streams
        self.rate = rate
        self.held = set()

    async def connect(self, target):
        if isinstance(target, int):
            return await asyncio.open_connection("127.0.0.1", target)
        return await asyncio.open_unix_connection("\0" + target)

    async def throw(self, target):
        """One stream; how it ended."""
        try:
            reader, writer = await self.connect(target)
        except OSError:
            return "refused"  # nobody listens any more
        try:
            return await self.converse(reader, writer)
        except (OSError, asyncio.IncompleteReadError):
            return "dropped"
        except TimeoutError:
            return "not dropped"
        finally:
            if writer not in self.held:
                writer.close()

    async def converse(self, reader, writer):
        async with asyncio.timeout(TIMEOUT):
            challenge = await reader.readexactly(CHALLENGE_BYTES)
            kind, words = self.streams.next(challenge)
            writer.write(words)
            await writer.drain()
            if kind in ("nothing", "cut_short", "zeros") or len(words) < 76:
                self.hold(writer)
                return "held"
            return "let in" if await reader.read(1) else "dropped"

    def keep(self, writer):
        """Leaves a connection open, until it makes room."""
        while len(self.held) >= HELD:
            self.held.pop().close()
        self.held.add(writer)

    def hold(self, writer):
        """Leaves a connection open. Every other one goes on a byte a second, until it is dropped or makes room."""
        self.keep(writer)
        if len(self.held) % 2 == 0:
            asyncio.get_running_loop().create_task(self.trickle(writer))

    async def trickle(self, writer):
        while writer in self.held:
            try:
                writer.write(b"\x02")
                await writer.drain()
            except OSError:
                break
            await asyncio.sleep(1)

    async def attack(self, targets, streams):
        outcomes = collections.Counter()
        room = asyncio.Semaphore(AT_ONCE)

        async def one(target):
            async with room:
                outcomes[await self.throw(target)] += 1

        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            for number in range(streams):
                await asyncio.sleep(began + number / self.rate - time.monotonic())
                group.create_task(one(targets[number % len(targets)]))
        return {"began": began, "ended": time.monotonic(), "outcomes": outcomes}


async def obey(stranger):
    """Attacks as standard input says, until it ends."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, most), most))
    os.nice(19)
    orders = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while order := await orders.readline():
        print(json.dumps(await stranger.attack(**json.loads(order))), flush=True)


if __name__ == "__main__":
    key, rate, seed = sys.argv[1:]
    streams = Streams(bytes.fromhex(key), int(seed))
    asyncio.run(obey(Stranger(streams, float(rate))))
