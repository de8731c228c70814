"""What one process read of the Hub, for the others, in Redis."""

from tonnage.adapters.redis_cache import opened, sealed
from tonnage.adapters.redis_link import RedisLink


class RedisHubCache:
    """`SharedCache` of a Hub; without Redis, or with garbage in it, nothing is shared."""

    def __init__(self, link: RedisLink) -> None:
        self._link = link

    async def load(self, key: str) -> bytes | None:
        """Bytes stored under the key, None without any or with ones that were not sealed for it."""
        try:
            return opened(key, await self._link.ask(lambda client: client.get(key)))
        except LookupError:
            return None

    async def store(self, key: str, value: bytes, seconds: float) -> None:
        """Keeps bytes for a while, if Redis does."""
        try:
            await self._link.ask(lambda client: client.set(key, sealed(key, value), ex=max(1, int(seconds))))
        except LookupError:
            return
