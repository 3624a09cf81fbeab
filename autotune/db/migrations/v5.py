"""Schema 5: `latencies`, times of whole models before and after tuning: the sum of kernels' times,
each measured by itself, is not what a user waits for.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "5"
down_revision = "4"
branch_labels = None
depends_on = None


def upgrade() -> None:
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "latencies",
        sa.Column("id", number, primary_key=True),
        sa.Column("model_key", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("target_key", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("before", sa.Text, nullable=False),
        sa.Column("after", sa.Text, nullable=False),
        sa.Column("kernels_before_s", sa.Float),
        sa.Column("kernels_after_s", sa.Float),
        sa.Column("created", sa.Text, nullable=False),
        sa.Column("origin", sa.Text, nullable=False),
    )
    op.create_index("latencies_model", "latencies", ["model_key", "target_key"])
