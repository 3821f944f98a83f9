"""The host: everything between the hook plugins and the user. Imports `hookspecs` alone."""
