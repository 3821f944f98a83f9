"""One codec for each family of protocol revisions: the only place where a revision is named.

``upstream`` and ``downstream`` alone import them; the rest of the core knows of no session and no handshake.
"""
