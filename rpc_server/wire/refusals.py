"""Classification of broken links. In: a reason and an address. Out: the reason in plain words with
what to do: LinkRefusedError where trying again is no use, LinkLostError where it may come back.
"""

from __future__ import annotations

import socket
import ssl

from rpc_server.security.tls import Credentials
from rpc_server.wire.link import LinkLostError

PROBE_S = 2.0
"""Seconds that looking at what answers there may take."""
ALERTS = {
    "certificate revoked": "this certificate was revoked",
    "certificate expired": "this certificate has expired",
    "certificate required": "a certificate is required",
    "unknown ca": "this certificate is of another authority",
    "bad certificate": "this certificate is not accepted",
    "certificate unknown": "this certificate is not accepted",
    "decrypt error": "this certificate is not accepted",
}
"""What the other end says in TLS before it hangs up (RFC 8446, section 6.2)."""
ISSUE = "ask for one with `rpc_server certs issue NAME --role ROLE`, pass its folder as --certs"


class LinkRefusedError(LinkLostError):
    """The other end is there and does not want this one: trying again changes nothing."""


def lost(
    reason: str, host: str, port: int, credentials: Credentials | None, answered: bool
) -> LinkLostError:
    """The error of a link that broke. `answered`: it had worked before, so the other end speaks as
    this one does; if not, and without certificates, it is asked whether it speaks TLS."""
    if credentials is not None:
        for alert, words in ALERTS.items():
            if f"alert {alert}" in reason:
                return LinkRefusedError(f"refused: {words} ({reason}); {ISSUE}")
        return LinkLostError(reason)
    if not answered and speaks_tls(host, port):
        return LinkRefusedError(f"refused: it serves holders of certificates only; {ISSUE}")
    return LinkLostError(reason)


def speaks_tls(host: str, port: int, timeout_s: float = PROBE_S) -> bool:
    """Whether TLS is spoken at an address; nothing of ours is sent, nobody is believed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host, port), timeout=timeout_s) as plain:
            context.wrap_socket(plain).close()
    except (OSError, ValueError):
        return False
    return True
