"""Authentication of the other end of a link, and its rights.

In: what TLS says of the peer's certificate, or the address of a peer without one. Out: a Peer.
A certificate's subject holds all there is: the name (CN), the role and rights (OU). It is read
with the standard library, so that a board needs no further package.
"""

from __future__ import annotations

import enum
import ipaddress
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import ConfigError, DeviceError

OBJECTS = "objects"
"""The right, beside the role of a client, to send object code."""


class AuthError(DeviceError):
    """The other side is not who it has to be."""


class Role(enum.StrEnum):
    """The purpose of a certificate. LOCAL is a peer on loopback without certificates, which
    may do everything: it is somebody on this machine."""

    TRACKER = "tracker"
    BOARD = "board"
    CLIENT = "client"
    LOCAL = "local"


ISSUED = (Role.TRACKER, Role.BOARD, Role.CLIENT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """The other end of a link. `objects`: it may send object code."""

    name: str
    role: Role
    objects: bool = False
    expires_s: float = float("inf")
    """When its certificate ends, in seconds since 1970."""

    def __str__(self) -> str:
        return f"{self.role} {self.name}"


def local_peer(address: str) -> Peer:
    """A peer on loopback, without certificates."""
    return Peer(name=address, role=Role.LOCAL, objects=True)


def peer_of(certificate: Mapping[str, Any] | None) -> Peer:
    """The peer that a verified certificate, as `SSLSocket.getpeercert` gives it, names.

    Raises AuthError where it is not one that `rpc_server certs` issues."""
    if not certificate:
        raise AuthError("expected a certificate, got none; start the peer with --certs DIR")
    subject = [pair for group in certificate.get("subject", ()) for pair in group]
    names = [value for key, value in subject if key == "commonName"]
    units = {value for key, value in subject if key == "organizationalUnitName"}
    roles = [role for role in ISSUED if role in units]
    if len(names) != 1 or len(roles) != 1:
        raise AuthError(
            f"expected a certificate with one name and one role, got names {names} and units "
            f"{sorted(units)}; make it with `rpc_server certs issue NAME --role ROLE`"
        )
    return Peer(
        name=names[0],
        role=roles[0],
        objects=OBJECTS in units,
        expires_s=ssl.cert_time_to_seconds(certificate["notAfter"]),
    )


def require_role(peer: Peer, admitted: frozenset[Role]) -> Peer:
    """The peer, if its role is among those admitted here. Raises AuthError."""
    if peer.role is not Role.LOCAL and peer.role not in admitted:
        wanted = " or ".join(sorted(admitted))
        raise AuthError(f"expected a {wanted} here, got {peer}; issue a certificate of that role")
    return peer


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_loopback(host: str) -> None:
    """Raises ConfigError for an address that other machines can reach: without certificates links
    are neither encrypted nor authenticated."""
    if not is_loopback(host):
        raise ConfigError(
            f"refusing to listen on {host}: without TLS only loopback addresses are served; "
            "use 127.0.0.1, or make certificates (`rpc_server certs init DIR`) and pass --certs"
        )
