"""Certificates: what is made, who may read it, what is refused."""

from __future__ import annotations

import datetime
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from autotune.errors import ConfigError
from rpc_server.__main__ import main
from rpc_server.security import certs
from rpc_server.security.auth import Role
from rpc_server.security.tls import CA, CERT, CRL, KEY, Credentials
from tests.unit.rpc_server.farm_certs import LONG_AGO, NOW


@pytest.fixture
def authority(tmp_path: Path) -> Path:
    certs.init(tmp_path / "farm", NOW)
    return tmp_path / "farm"


def test_a_certificate_s_folder_has_all_that_a_machine_needs(authority: Path) -> None:
    folder = certs.issue(authority, "rpi4", Role.BOARD, NOW)
    assert sorted(p.name for p in folder.iterdir()) == sorted([CA, CERT, CRL, KEY])
    context = Credentials(folder).context(server=True)
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    assert context.verify_mode is ssl.CERT_REQUIRED


def test_keys_are_for_their_owner_only(authority: Path) -> None:
    folder = certs.issue(authority, "rpi4", Role.BOARD, NOW)
    for key in (authority / certs.CA_KEY, folder / KEY):
        assert key.stat().st_mode & 0o077 == 0
    (folder / KEY).chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        Credentials(folder)


def test_an_authority_is_not_overwritten(authority: Path) -> None:
    before = (authority / certs.CA_KEY).read_bytes()
    with pytest.raises(ConfigError, match="has an authority already"):
        certs.init(authority, NOW)
    assert (authority / certs.CA_KEY).read_bytes() == before


def test_a_name_is_issued_again_only_after_it_ended(authority: Path) -> None:
    certs.issue(authority, "rpi4", Role.BOARD, LONG_AGO, days=10)
    certs.issue(authority, "rpi4", Role.BOARD, NOW)
    with pytest.raises(ConfigError, match="certs revoke rpi4"):
        certs.issue(authority, "rpi4", Role.BOARD, NOW)
    certs.revoke(authority, "rpi4", NOW)
    certs.issue(authority, "rpi4", Role.CLIENT, NOW)


@pytest.mark.parametrize("name", ["", "../up", "a/b", "-x", "a" * 64, "o=o", "ü"])
def test_odd_names_are_refused(authority: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="a name is of letters"):
        certs.issue(authority, name, Role.CLIENT, NOW)


def test_only_clients_may_send_objects(authority: Path) -> None:
    with pytest.raises(ConfigError, match="only a client"):
        certs.issue(authority, "rpi4", Role.BOARD, NOW, objects=True)


def test_revoking_somebody_unknown_says_who_is_known(authority: Path) -> None:
    certs.issue(authority, "rpi4", Role.BOARD, NOW)
    with pytest.raises(ConfigError, match="it did to rpi4"):
        certs.revoke(authority, "rpi5", NOW)


def test_a_revocation_reaches_every_folder_and_keeps_earlier_ones(authority: Path) -> None:
    from cryptography import x509

    for name in ("a", "b", "c"):
        certs.issue(authority, name, Role.CLIENT, NOW)
    certs.revoke(authority, "a", NOW)
    changed = certs.revoke(authority, "b", NOW + datetime.timedelta(seconds=1))
    assert len(changed) == 4
    for path in changed:
        assert len(list(x509.load_pem_x509_crl(path.read_bytes()))) == 2


@pytest.mark.parametrize("missing", [CA, CRL, CERT, KEY])
def test_a_folder_without_a_file_says_which(authority: Path, missing: str) -> None:
    folder = certs.issue(authority, "rpi4", Role.BOARD, NOW)
    (folder / missing).unlink()
    with pytest.raises(ConfigError, match=f"has no {missing}"):
        Credentials(folder)


def test_a_damaged_certificate_is_one_line(authority: Path) -> None:
    folder = certs.issue(authority, "rpi4", Role.BOARD, NOW)
    (folder / CERT).write_text("not a certificate")
    with pytest.raises(ConfigError, match="cannot be used"):
        Credentials(folder)


def test_the_commands_make_issue_and_revoke(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    farm = str(tmp_path / "farm")
    main(["certs", "init", farm])
    main(["certs", "issue", "me", "--role", "client", "--days", "3", "--objects", "--dir", farm])
    main(["certs", "revoke", "me", "--dir", farm])
    said = capsys.readouterr().out
    assert "keep " in said
    assert "--certs" in said
    assert "revoked me" in said


@pytest.mark.parametrize(
    "arguments",
    [
        ["certs", "issue", "me", "--role", "client", "--dir", "/no/such/folder"],
        ["certs", "revoke", "me", "--dir", "/no/such/folder"],
        ["certs", "issue", "me", "--role", "king"],
        ["certs", "issue", "me", "--role", "client", "--days", "0"],
        ["serve", "--listen", "127.0.0.1:0", "--certs", "/no/such/folder"],
    ],
)
def test_wrong_arguments_end_with_2(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


WITHOUT = """
import sys
sys.modules["cryptography"] = None
import rpc_server.board.device, rpc_server.security.tls, rpc_server.wire.listener
from pathlib import Path
rpc_server.security.tls.Credentials(Path(sys.argv[1]))
from rpc_server.__main__ import main
main(["certs", "init", sys.argv[1] + "-new"])
"""


def test_only_making_certificates_needs_cryptography(authority: Path) -> None:
    folder = certs.issue(authority, "rpi4", Role.BOARD, NOW)
    root = Path(__file__).parents[3]
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT, str(folder)],
        capture_output=True, text=True, check=False, cwd=root,
    )  # fmt: skip
    assert done.returncode == 2
    assert "needs the package cryptography" in done.stderr


def test_output_that_nobody_reads_on_is_no_error(tmp_path: Path) -> None:
    command = f"{sys.executable} -m rpc_server certs init {tmp_path / 'certs'} | true"
    ended = subprocess.run(
        ["bash", "-c", f"sleep 0; {command}; exit ${{PIPESTATUS[0]}}"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (ended.returncode, ended.stderr) == (0, "")
