"""What schemathesis is told about the admin API: who asks, what there is, and what is written down of the answers."""

import atexit
import collections
import json
import os

import schemathesis
import yaml

TOKEN = os.environ["TIDEGATE_TOKEN"]
# Every second call is about something that there is: names that are drawn name nothing.
KNOWN = {"api_key": "known", "name": "gold", "id": "search", "ruleId": "search"}
# And every fourth says something that makes sense: what rules mean is no matter of a schema, and nobody draws it by chance.
RULE = {"endpoint": "/s", "maxRequests": 5, "windowSeconds": 60}
SENSE = {
    "PUT /admin/v1/rules/{id}": RULE,
    "PUT /api/admin/rate-limit-rules/{ruleId}": RULE,
    "POST /admin/v1/rules/{id}/rollback": {"version": 1},
}
# The same, not in JSON: lines that make sense, in the form that was drawn.
LINES = {
    "application/x-ndjson": '{"api_key":"imported","tier":"pro"}\n{"api_key":"known","tier":"free"}\n',
    "text/csv": "api_key,tier\nimported,pro\nknown,free\n",
}
# The id of the token itself: without it, all that follows would be about tokens that are worth nothing.
OWN = os.environ["TIDEGATE_TOKEN_ID"]

calls = collections.Counter()
statuses = collections.defaultdict(collections.Counter)


# Exports are several documents; its own reader takes one, and its worker ends without a word. It knows these as one family.
@schemathesis.deserializer(
    "text/yaml", "text/x-yaml", "text/vnd.yaml", "application/x-yaml", "application/yaml"
)
def documents(context, response):
    return list(yaml.safe_load_all(response.content))


@schemathesis.hook
def before_call(context, case, kwargs):
    label = case.operation.label
    calls[label] += 1
    # Wrong tokens are refused unseen after ten tries; who may do what has tests of its own.
    headers = dict(case.headers or {})
    for name in [name for name in headers if name.lower() == "authorization"]:
        del headers[name]
    if label in SENSE and calls[label] % 4 == 0:
        case.body, case.media_type, case.query, headers = SENSE[label], "application/json", {}, {}
    if label == "POST /admin/v1/quotas:import" and calls[label] % 4 == 0 and case.media_type in LINES:
        case.body, case.query = LINES[case.media_type], {}
        headers = {"Content-Type": case.media_type}
    headers["Authorization"] = f"Bearer {TOKEN}"
    case.headers = headers
    parameters = dict(case.path_parameters or {})
    for name in parameters:
        if label == "DELETE /admin/v1/tokens/{id}":
            if parameters[name] == OWN:
                parameters[name] = "0" * 16
        elif calls[label] % 2 == 0:
            parameters[name] = KNOWN[name]
    case.path_parameters = parameters


@schemathesis.hook
def after_call(context, case, response):
    statuses[case.operation.label][str(response.status_code)] += 1


@atexit.register
def write():
    with open(os.environ["TIDEGATE_STATUSES"], "w") as file:
        json.dump(statuses, file)
