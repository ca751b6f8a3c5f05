"""Ends TLS connections in front of a server that speaks plain TCP.

TFF's worker has no TLS of its own. Bytes go through as they are, so that the
caller sees the worker's HTTP/2 itself: who connects while the worker is down
gets no answer, rather than one from something in between.
"""

import asyncio
import contextlib
import os
import ssl
from typing import Union

PathLike = Union[str, os.PathLike]

_CHUNK_BYTES = 2**18


def server_context(
  certificate: PathLike, key: PathLike, ca: PathLike
) -> ssl.SSLContext:
  """Returns TLS settings that ask both sides for a certificate.

  Args:
    certificate: PEM file with the server's certificate (chain).
    key: PEM file with its key.
    ca: PEM file with the authority that signed the certificates of callers.

  Raises:
    OSError: If a file cannot be read or does not hold what it must
      (`ssl.SSLError` is one).
  """
  context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=ca)
  context.verify_mode = ssl.CERT_REQUIRED
  context.minimum_version = ssl.TLSVersion.TLSv1_2
  context.load_cert_chain(certificate, key)
  context.set_alpn_protocols(['h2'])  # gRPC does not talk to others.
  return context


async def start(
  context: ssl.SSLContext, port: int, plain_port: int
) -> asyncio.AbstractServer:
  """Starts to accept connections on all interfaces.

  Args:
    context: See `server_context`.
    port: Where TLS connections come in.
    plain_port: The port on this machine that they are passed on to.

  Returns:
    The server.

  Raises:
    OSError: If the port is taken.
  """

  async def handle(reader, writer):
    # A caller that leaves in the middle is no error of this side.
    with contextlib.suppress(OSError):
      inner = await asyncio.open_connection('127.0.0.1', plain_port)
      await _pass_on(reader, writer, *inner)
    writer.close()

  return await asyncio.start_server(handle, port=port, ssl=context)


async def _pass_on(reader, writer, inner_reader, inner_writer) -> None:
  """Passes bytes on both ways until one side ends."""
  directions = [
    asyncio.ensure_future(_copy(reader, inner_writer)),
    asyncio.ensure_future(_copy(inner_reader, writer)),
  ]
  try:
    await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
  finally:
    for direction in directions:
      direction.cancel()
    await asyncio.gather(*directions, return_exceptions=True)
    inner_writer.close()


async def _copy(reader, writer) -> None:
  while chunk := await reader.read(_CHUNK_BYTES):
    writer.write(chunk)
    await writer.drain()
