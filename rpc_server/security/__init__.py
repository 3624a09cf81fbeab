"""Who is on the other end of a link: certificates, tickets, the audit log."""
