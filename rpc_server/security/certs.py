"""The farm's private certificate authority. In: commands. Out: folders of certificates.

    DIR/ca.pem ca.key crl.pem     the authority; ca.key never leaves this machine
    DIR/NAME/ca.pem crl.pem cert.pem key.pem     what one machine needs: copy the folder there

Needs the package `cryptography` (the extra [farm]); the other ends of the farm do not.
"""

from __future__ import annotations

import datetime
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.errors import ConfigError
from rpc_server.security.auth import ISSUED, OBJECTS, Role
from rpc_server.security.tls import CA, CERT, CRL, KEY

if TYPE_CHECKING:
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

CA_KEY = "ca.key"
CA_DAYS = 3650
"""Days that a new authority is valid."""
DEFAULT_DAYS = 365
"""Days that a certificate is valid, unless the user says otherwise."""
EARLIER = datetime.timedelta(hours=1)
"""Certificates are valid from an hour before they are made: clocks differ."""
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,62}")


def init(folder: Path, now: datetime.datetime) -> None:
    """Make a new authority in a folder that has none. Raises ConfigError."""
    x509, ec, hashes = _library()
    if (folder / CA_KEY).exists() or (folder / CA).exists():
        raise ConfigError(f"{folder} has an authority already; choose another folder")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "autotune farm")])
    usage = _usage(x509, authority=True)
    builder = _builder((name, name), key.public_key(), now, CA_DAYS)
    certificate = (
        builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / CA_KEY, key)
    _write(folder / CA, _pem(certificate))
    _write_crl(folder, [], now)


def issue(
    folder: Path,
    name: str,
    role: Role,
    now: datetime.datetime,
    *,
    days: float = DEFAULT_DAYS,
    objects: bool = False,
) -> Path:
    """A certificate of one role, in the folder DIR/NAME, which is returned. A name is issued again
    only after it was revoked or has expired. Raises ConfigError."""
    x509, ec, hashes = _library()
    if not NAME.fullmatch(name):
        raise ConfigError(f"a name is of letters, digits and _.-, up to 63, got {name!r}")
    if role not in ISSUED:
        raise ConfigError(f"role must be one of {', '.join(ISSUED)}, got {role!r}")
    if objects and role is not Role.CLIENT:
        raise ConfigError(f"only a client sends object code, {name} is a {role}")
    ca_key, ca = _authority(folder)
    target = folder / name
    if (target / CERT).exists() and not _ended(folder, target, now):
        raise ConfigError(
            f"{name} has a valid certificate; `rpc_server certs revoke {name}` first"
        )
    key = ec.generate_private_key(ec.SECP256R1())
    units = [str(role), *([OBJECTS] if objects else [])]
    oid = x509.NameOID
    subject = x509.Name(
        [x509.NameAttribute(oid.COMMON_NAME, name)]
        + [x509.NameAttribute(oid.ORGANIZATIONAL_UNIT_NAME, unit) for unit in units]
    )
    uses = [x509.ExtendedKeyUsageOID.CLIENT_AUTH, x509.ExtendedKeyUsageOID.SERVER_AUTH]
    identifier = ca.extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value
    issuer = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    certificate = (
        _builder((subject, ca.subject), key.public_key(), now, days)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(x509, authority=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .add_extension(issuer, critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    target.mkdir(mode=0o700, exist_ok=True)
    _write_key(target / KEY, key)
    _write(target / CERT, _pem(certificate))
    _write(target / CA, (folder / CA).read_bytes())
    _write(target / CRL, (folder / CRL).read_bytes())
    return target


def revoke(folder: Path, name: str, now: datetime.datetime) -> tuple[Path, ...]:
    """Refuse a name's certificate from now on. Gives the revocation lists that were rewritten:
    here, and in every folder of a certificate; machines elsewhere need a copy. Raises
    ConfigError."""
    x509, _, _ = _library()
    _authority(folder)
    path = folder / name / CERT
    if not NAME.fullmatch(name) or not path.is_file():
        known = ", ".join(sorted(p.parent.name for p in folder.glob(f"*/{CERT}"))) or "nobody"
        raise ConfigError(f"{folder} issued no certificate to {name!r}; it did to {known}")
    certificate = x509.load_pem_x509_certificate(path.read_bytes())
    revoked = list(x509.load_pem_x509_crl((folder / CRL).read_bytes()))
    if all(entry.serial_number != certificate.serial_number for entry in revoked):
        entry = x509.RevokedCertificateBuilder().serial_number(certificate.serial_number)
        revoked.append(entry.revocation_date(now).build())
        _write_crl(folder, revoked, now)
    return (folder / CRL, *sorted(folder.glob(f"*/{CRL}")))


def _library() -> tuple[Any, Any, Any]:
    """x509, ec and hashes of `cryptography`. Raises ConfigError where it is not installed."""
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ConfigError(
            "making certificates needs the package cryptography; "
            "run `pip install 'autotune-compiler[farm]'`"
        ) from None
    return x509, ec, hashes


def _builder(
    names: tuple[x509.Name, x509.Name], key: Any, now: datetime.datetime, days: float
) -> x509.CertificateBuilder:
    """A certificate of a key. `names`: subject and issuer."""
    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(names[0])
        .issuer_name(names[1])
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + datetime.timedelta(days=days)) - EARLIER)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(x509: Any, *, authority: bool) -> Any:
    return x509.KeyUsage(
        digital_signature=not authority,
        key_cert_sign=authority,
        crl_sign=authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _authority(folder: Path) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    x509, ec, _ = _library()
    from cryptography.hazmat.primitives import serialization

    try:
        key = serialization.load_pem_private_key((folder / CA_KEY).read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate((folder / CA).read_bytes())
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"{folder} is no certificate authority ({error}); `rpc_server certs init {folder}`"
        ) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise ConfigError(f"{folder / CA_KEY} is not a key that `certs init` made")
    return key, certificate


def _ended(folder: Path, target: Path, now: datetime.datetime) -> bool:
    x509, _, _ = _library()
    certificate = x509.load_pem_x509_certificate((target / CERT).read_bytes())
    crl = x509.load_pem_x509_crl((folder / CRL).read_bytes())
    revoked = crl.get_revoked_certificate_by_serial_number(certificate.serial_number) is not None
    return revoked or certificate.not_valid_after_utc < now


def _write_crl(folder: Path, revoked: list[Any], now: datetime.datetime) -> None:
    """The revocation list, here and in every folder of a certificate. It is valid for as long as
    the authority: an old list must not take a farm down, a new one is read when it comes."""
    x509, _, hashes = _library()
    key, ca = _authority(folder)
    builder = x509.CertificateRevocationListBuilder().issuer_name(ca.subject)
    builder = builder.last_update(now - EARLIER).next_update(ca.not_valid_after_utc)
    for entry in revoked:
        builder = builder.add_revoked_certificate(entry)
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(key.public_key())
    crl = (
        builder.add_extension(x509.CRLNumber(int(now.timestamp() * 1000)), critical=False)
        .add_extension(identifier, critical=False)
        .sign(key, hashes.SHA256())
    )
    for path in (folder / CRL, *folder.glob(f"*/{CRL}")):
        _write(path, _pem(crl))


def _pem(value: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    data: bytes = value.public_bytes(Encoding.PEM)
    return data


def _write_key(path: Path, key: Any) -> None:
    from cryptography.hazmat.primitives import serialization

    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    _write(path, pem, mode=0o600)


def _write(path: Path, data: bytes, mode: int = 0o644) -> None:
    """Replace a file in one step: whoever reads it meanwhile sees the old or the new one."""
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    partial.replace(path)
