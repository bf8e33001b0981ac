"`python -m invariant_metrics` is the command `invariant-metrics`."
import sys

from invariant_metrics.commands.shell import main

sys.exit(main())
