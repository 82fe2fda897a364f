"""What an engine does, as it happens: from its blocks, in a terminal or a browser.

`follower` adds blocks up to a view, `sources` says where blocks come from (an engine in this process, a log that
grows, a page that somebody else serves), `serve` shows a view to browsers, and `stagehold top` to a terminal. Nothing
here can change an engine.
"""

from stagehold.operate.live.follower import Follower
from stagehold.operate.live.serve import serve
from stagehold.operate.live.sources import EngineSource, LogSource, PageSource

__all__ = ["EngineSource", "Follower", "LogSource", "PageSource", "serve"]
