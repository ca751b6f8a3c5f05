"""What the addresses of workers look like, and how long one waits for them.

Without TensorFlow, so that the flags of a program can be checked at once.
"""

from collections.abc import Sequence
import ipaddress
import math
import numbers
import re
from typing import Any, Optional

# Letters, digits and hyphens between dots, as names on the internet and IPv4
# addresses have them; underscores are common in networks of one's own.
_LABEL = r'[A-Za-z0-9_]([A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?'
_HOST = re.compile(rf'{_LABEL}(\.{_LABEL})*\.?', re.ASCII)
_MAX_HOST_LENGTH = 253
_DIGITS_AND_DOTS = re.compile(r'[0-9.]+', re.ASCII)
_PORT = re.compile(r'[0-9]{1,5}', re.ASCII)
_MAX_PORT = 2**16 - 1
_MAX_SECONDS = 24 * 60 * 60.0


def check_addresses(
  addresses: Sequence[str], name: str = 'workers'
) -> list[str]:
  """Checks the addresses of workers.

  Args:
    addresses: 'host:port' of each, at least one: the host a name, an IPv4
      address, or an IPv6 address in brackets; the port from 1 to 65535.
    name: The argument's name, for the error message.

  Returns:
    The addresses.

  Raises:
    TypeError: If it is no sequence of strings.
    ValueError: If there is none, one is something else, or two are the same,
      but for capitals, zeros before the port or the spelling of an IPv6
      address. Two names of one machine are not noticed.
  """
  if (
    isinstance(addresses, str)
    or not isinstance(addresses, Sequence)
    or not all(isinstance(address, str) for address in addresses)
  ):
    raise TypeError(
      f'{name} must be a sequence of host:port, found {addresses!r}'
    )
  everything = ','.join(addresses)
  if not addresses:
    raise ValueError(f'{name} must be at least one host:port, found none')
  found: dict[tuple[str, int], str] = {}
  for address in addresses:
    key = _host_and_port(address)
    if key is None:
      raise ValueError(
        f'{name} must be host:port, with a port from 1 to {_MAX_PORT}, found'
        f' {address!r} in {everything!r}'
      )
    if key in found:
      raise ValueError(
        f'{name} must be different addresses, found {found[key]!r} and'
        f' {address!r}'
      )
    found[key] = address
  return list(addresses)


def split_address(address: str) -> tuple[str, int]:
  """Returns host and port of an address that has passed `check_addresses`.

  Args:
    address: 'host:port'.

  Returns:
    The host in lower case, without brackets, and the port.

  Raises:
    ValueError: If it is something else.
  """
  key = _host_and_port(address)
  if key is None:
    raise ValueError(f'address must be host:port, found {address!r}')
  return key


def check_timeout(value: Any, name: str = 'timeout_seconds') -> float:
  """Checks how long an answer is waited for.

  Args:
    value: Seconds: a number > 0, at most a day.
    name: The argument's name, for the error message.

  Returns:
    The seconds.

  Raises:
    TypeError: If it is not a number.
    ValueError: If it is out of range.
  """
  if isinstance(value, bool) or not isinstance(value, numbers.Real):
    raise TypeError(f'{name} must be a number of seconds, found {value!r}')
  if not math.isfinite(value) or not 0 < value <= _MAX_SECONDS:
    raise ValueError(
      f'{name} must be > 0 and at most a day ({_MAX_SECONDS:.0f} seconds),'
      f' found {value!r}'
    )
  return float(value)


def _host_and_port(address: str) -> Optional[tuple[str, int]]:
  """Returns what two spellings of an address share; None if it is none."""
  host, _, digits = address.rpartition(':')
  if not _PORT.fullmatch(digits) or not 0 < int(digits) <= _MAX_PORT:
    return None
  if host.startswith('[') and host.endswith(']'):
    try:
      ip = ipaddress.IPv6Address(host[1:-1])
    except ValueError:
      return None
    return str(ip.ipv4_mapped or ip), int(digits)
  if not _HOST.fullmatch(host) or len(host) > _MAX_HOST_LENGTH:
    return None
  host = host.lower().rstrip('.')
  if _DIGITS_AND_DOTS.fullmatch(host):
    try:
      ipaddress.IPv4Address(host)
    except ValueError:
      return None
  return host, int(digits)
