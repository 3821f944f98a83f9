"""The contract."""
