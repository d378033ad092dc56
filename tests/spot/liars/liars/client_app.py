"""The training of another test's app behind the mods of a member, of whom each may lie.

`CLINICS` names the app's package, which must be on the path, and `LIES` holds a name of a lie per
member, or an empty text. An auditor runs the app without lies.
"""

import importlib
import json
import os
from types import SimpleNamespace

from flwr.clientapp import ClientApp

from tests.spot.federation import LIES
from verax.flower import prescribed, signed
from verax.flower.randomness import is_training

clinics = importlib.import_module(f"{os.environ['CLINICS']}.client_app")
samples = clinics.samples


def lying(request, context, call_next):
    """The lie of this member, if it has one."""
    lies = json.loads(os.environ.get("LIES", "[]"))
    chosen = lies[context.node_config["partition-id"]] if lies else ""
    if not chosen or not is_training(request):
        return call_next(request, context)
    return LIES[chosen](SimpleNamespace(reader=clinics.__name__), request, context, call_next)


app = ClientApp(mods=[signed(), prescribed(), lying])
app.train()(clinics.train)
app.evaluate()(clinics.evaluate)
