"""What ships with Bascule, as hook plugins like any other: found by entry points, standing on `hookspecs`."""
