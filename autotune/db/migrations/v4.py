"""Schema 4: `profiles`, the peaks and bandwidths that devices measured of themselves: a record of
another device says more where that device's speeds are known.
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
