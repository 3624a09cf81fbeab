"""What a board refuses, or says, where its secrets are not kept from candidates."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from autotune.errors import ConfigError
from autotune.measure.sandbox import Sandbox
from rpc_server.board.walls import check_certs, file_walls

WALLS = Sandbox(read_system_only=True)
HELD = {"view": "", "files": "", "privileges": ""}
NONE = {"view": "unshare: Operation not permitted", "files": "the kernel has no Landlock"}


def test_certificates_where_candidates_may_read_are_refused(tmp_path: Path) -> None:
    inside = Path(sys.prefix, "lib", "certs")
    with pytest.raises(ConfigError, match="which candidates may read; move it"):
        check_certs(inside, WALLS)
    outside = tmp_path / "certs"
    outside.mkdir()
    check_certs(outside, WALLS)


def test_a_key_that_is_a_link_counts_where_it_lies(tmp_path: Path) -> None:
    (tmp_path / "key.pem").symlink_to(Path(sys.prefix, "lib", "key.pem"))
    with pytest.raises(ConfigError, match="which candidates may read"):
        check_certs(tmp_path, WALLS)


@pytest.mark.parametrize("user", [0, 1000])
@pytest.mark.parametrize("wall", ["view", "files"])
def test_one_wall_is_enough(wall: str, user: int) -> None:
    assert file_walls({**NONE, wall: "", "privileges": "kept"}, user, "certs") == ()


def test_without_walls_a_user_of_its_own_has_to_do_and_that_is_said() -> None:
    (line,) = file_walls({**NONE, "privileges": ""}, 0, "certs")
    assert "by their modes alone" in line


def test_root_is_not_served_without_walls() -> None:
    with pytest.raises(ConfigError, match="candidates would be root and read everything"):
        file_walls({**NONE, "privileges": "still root"}, 0, "")


def test_a_key_is_not_served_beside_candidates_of_the_same_user() -> None:
    with pytest.raises(ConfigError, match=r"could read certs/key.pem.*start the board as root"):
        file_walls({**NONE, "privileges": ""}, 1000, "certs")
    (line,) = file_walls({**NONE, "privileges": ""}, 1000, "")
    assert "not kept from candidates" in line
