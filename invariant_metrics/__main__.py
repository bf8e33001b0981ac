"`python -m invariant_metrics` is the command `invariant-metrics`."
import sys

from invariant_metrics.commands.start import start

sys.exit(start())
