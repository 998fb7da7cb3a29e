"""The one road: limits, authenticate, once, classify, authorise, act, record."""
