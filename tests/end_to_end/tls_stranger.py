"""A stranger who throws bytes at the port on which hvdrun awaits agents, which speaks gRPC over TLS.

    tls_stranger.py RATE SEED [CERTIFICATE]

Orders and answers are those of stranger.py. CERTIFICATE is a PEM file with a certificate and its key, which is not the
job's: every other full handshake shows it.
"""

import asyncio
import itertools
import random
import ssl
import struct
import sys

from stranger import TIMEOUT, Stranger, flip, obey

HANDSHAKE_PATIENCE = 4 + TIMEOUT  # gRPC drops those who do not finish their handshake within five seconds
HANDSHAKE_RECORD = 0x16
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
METHOD = b"/hvd.launcher.proto.Parent/Attach"
FIELDS = b"\x83\x87\x44" + bytes([len(METHOD)]) + METHOD  # POST, https, and the path
CALL = PREFACE + struct.pack(">I", len(FIELDS))[1:] + b"\x01\x04\x00\x00\x00\x01" + FIELDS


def client_context(certificate=None, version=None):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # it is curious, not careful
    context.set_alpn_protocols(["grpc-exp", "h2"])
    if version:
        context.maximum_version = version
    if certificate:
        context.load_cert_chain(certificate)
    return context


class Client:
    """A client's end of TLS, in memory."""

    def __init__(self, context):
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.object = context.wrap_bio(self.incoming, self.outgoing)

    def hello(self):
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return self.outgoing.read()
        raise AssertionError("a handshake cannot be over before it has begun")

    def shake_hands(self, said):
        """Whether it is done, as far as the client sees; raises ssl.SSLError if it is refused."""
        self.incoming.write(said)
        try:
            self.object.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    def hears(self, said):
        """Whether the server has said something to it that is neither TLS's own nor its end."""
        self.incoming.write(said)
        try:
            return bool(self.object.read(1))
        except ssl.SSLWantReadError:
            return False


class TlsStranger(Stranger):
    def __init__(self, rate, seed, certificate=None):
        super().__init__(None, rate)
        self.rng = random.Random(seed)
        versions = (None, ssl.TLSVersion.TLSv1_2)
        self.contexts = itertools.cycle([client_context(own, old) for old in versions for own in {None, certificate}])
        self.recorded = None
        thrown = [self.noise, self.hello_mutated, self.hello_repeated, self.hello_oversized, self.plain, self.zeros]
        held = [self.nothing, self.hello_cut_short]
        self.kinds = itertools.cycle([*thrown, self.shake_hands, *held, self.shake_hands, self.trickle_hello])

    def hello(self):
        return Client(next(self.contexts)).hello()

    def noise(self):
        return self.rng.randbytes(self.rng.randrange(6, 4096))

    def hello_mutated(self):
        hello = self.hello()
        for _ in range(self.rng.randrange(1, 8)):
            hello = flip(hello, self.rng)
        return hello

    def hello_repeated(self):
        """The same random numbers and key shares as an earlier one, and then noise in records that look right."""
        earlier, self.recorded = self.recorded or self.hello(), self.hello()
        return earlier + b"".join(b"\x17\x03\x03\x02\x00" + self.rng.randbytes(512) for _ in range(4))

    def hello_oversized(self):
        """A hello of 16 MB, says its head, in records of 16 KB."""
        record = struct.pack(">BHH", HANDSHAKE_RECORD, 0x0301, 0x4000)
        return record + b"\x01\xff\xff\xff" + bytes(0x4000 - 4) + (record + self.rng.randbytes(0x4000)) * 15

    def plain(self):
        request = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
        return self.rng.choice([PREFACE, CALL, request, b"SSH-2.0-OpenSSH_9.2\r\n"])

    def zeros(self):
        return bytes(self.rng.randrange(6, 1000))

    def nothing(self):
        return b""

    def hello_cut_short(self):
        hello = self.hello()
        return hello[: self.rng.randrange(1, len(hello))]

    async def converse(self, reader, writer):
        kind = next(self.kinds)
        if kind in (self.shake_hands, self.trickle_hello):
            return await kind(reader, writer)
        words = kind()
        writer.write(words)
        if kind in (self.nothing, self.hello_cut_short):
            self.hold(writer)
            return "held"
        # What is refused is told so in a record of another type, or not at all. Where a length was changed, the server
        # waits for the rest.
        try:
            async with asyncio.timeout(1):
                await writer.drain()
                answer = await reader.read(1)
        except TimeoutError:
            answer = None
        if answer is not None and answer != bytes([HANDSHAKE_RECORD]):
            return "dropped"
        self.hold(writer)
        return "held"

    async def shake_hands(self, reader, writer):
        """All of a handshake but the certificate; and then, as if that were none of the server's business, a call."""
        client = Client(next(self.contexts))
        writer.write(client.hello())
        async with asyncio.timeout(HANDSHAKE_PATIENCE):
            try:
                done = False
                while not done and (said := await reader.read(1 << 16)):
                    done = client.shake_hands(said)
                    if done:
                        client.object.write(CALL + self.rng.randbytes(self.rng.randrange(100)))
                    writer.write(client.outgoing.read())
                while done and (said := await reader.read(1 << 16)):
                    if client.hears(said):
                        return "let in"
            except ssl.SSLError:
                pass  # it is told why
        return "dropped"

    async def trickle_hello(self, reader, writer):
        """A true hello in twenty pieces, a tenth of a second apart."""
        self.keep(writer)
        asyncio.get_running_loop().create_task(self.say_slowly(writer, self.hello()))
        return "held"

    async def say_slowly(self, writer, hello):
        piece = len(hello) // 20
        for begin in range(0, len(hello), piece):
            if writer.is_closing():
                return
            writer.write(hello[begin : begin + piece])
            await asyncio.sleep(0.1)


if __name__ == "__main__":
    rate, seed, *certificate = sys.argv[1:]
    asyncio.run(obey(TlsStranger(float(rate), int(seed), *certificate)))
