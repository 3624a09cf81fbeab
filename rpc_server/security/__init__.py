"""Security of links: certificates, roles, freshness of messages, the audit log."""
