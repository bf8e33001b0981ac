"`python -m invariant_metrics` is the command `invariant-metrics`."
import sys

from invariant_metrics.cli import main

sys.exit(main())
