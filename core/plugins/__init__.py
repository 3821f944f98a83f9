"""The life of plugins: install, grant, enable, disable, restart, uninstall (N3.5, N4).

``front`` takes the orders, one at a time for each plugin; ``moves`` starts and stops; ``hosts`` says what a host is
made from and whether it may be started; ``installed`` is what is known of a plugin; ``house`` what all of them live on.
"""

from .front import Plugins
from .house import House

__all__ = ["House", "Plugins"]
