"""Schema 3: `records.conditions`, a device's clock and heat while it measured, and `rankings`, the
quality of predictions made before a measurement, a row per task of a round.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("records", sa.Column("conditions", sa.Text, nullable=False, server_default=""))
    number = sa.BigInteger().with_variant(sa.Integer, "sqlite")
    op.create_table(
        "rankings",
        sa.Column("id", number, primary_key=True),
        sa.Column("task_key", sa.Text, nullable=False),
        sa.Column("target_key", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("samples", sa.Integer, nullable=False),
        sa.Column("rank_correlation", sa.Float, nullable=False),
        sa.Column("top_recall", sa.Float, nullable=False),
        sa.Column("regret", sa.Float),
        sa.Column("created", sa.Text, nullable=False),
    )
    op.create_index("rankings_task", "rankings", ["task_key", "target_key"])
