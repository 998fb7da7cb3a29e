"""Short synchronous units of work, grouped, durable; the only package that opens a database."""
