"""The client's side: leases of boards, and runners that use them."""
