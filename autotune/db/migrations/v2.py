"""Schema 2: records have an `origin`, and a `mark` that says whether they count (types.Mark).

The index that answers `best` takes the mark in, so imported records cost a lookup nothing.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("records", sa.Column("origin", sa.Text, nullable=False, server_default=""))
    op.add_column("records", sa.Column("mark", sa.Integer, nullable=False, server_default="0"))
    op.drop_index("records_best", "records")
    columns = ["task_key", "target_key", "status", "mark", "median_s", "id"]
    op.create_index("records_best", "records", columns)
