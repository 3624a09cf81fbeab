"""What devices measured about themselves (`profiles`): records of another device say more where it
is known what that device is capable of.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "4"
down_revision = "3"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "profiles",
        sa.Column("id", number, primary_key=True),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("target_key", sa.Text, nullable=False),
        sa.Column("json", sa.Text, nullable=False),
        sa.Column("created", sa.Text, nullable=False),
    )
    op.create_index("profiles_device", "profiles", ["device", "target_key"])
