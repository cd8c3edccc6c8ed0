"""Which hosts an elastic job may use."""

from __future__ import annotations

__all__ = ["HostDiscovery"]


class HostDiscovery:
    """For `settings.discovery` of horovod.ray's elastic executors."""

    def find_available_hosts_and_slots(self) -> dict[str, int]:
        """Slots by host, as of now; called again and again."""
        raise NotImplementedError
