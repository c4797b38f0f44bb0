"""The metrics of queues for Prometheus. It needs prometheus_client: `pip install 'xq-tables[metrics]'`."""

from xq.metrics.collector import Metrics
from xq.metrics.server import listen, serving

__all__ = ["Metrics", "listen", "serving"]
