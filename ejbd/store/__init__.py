"""Tables, migrations and transactions."""
