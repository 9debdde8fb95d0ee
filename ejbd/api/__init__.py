"""REST: typed models over the manager, errors as problem+json."""
