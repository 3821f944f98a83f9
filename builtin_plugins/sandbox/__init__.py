"""Launchers that keep a server apart: ``bubblewrap`` (full), ``landlock`` (reduced), ``seatbelt`` and ``job_object``.

Each is a hook plugin of its own, with an entry point of its own; they share the supervisor, the seccomp filter and the
places that a server is given. The tree of processes below the bridge::

    bridge ── control pipe ──> supervisor ──> bwrap ──> bwrap (process 1 of the namespace) ──> server ──> …
    bridge ── control pipe ──> supervisor ──> server under Landlock ──> …

The way down, written first: close stdin, wait the grace; ``T`` on the control pipe (SIGTERM to the server's
processes), wait a moment; close the control pipe, upon which the supervisor kills everything below it and ends; kill
the supervisor, where even that did not help. Every wait is bounded.
"""
