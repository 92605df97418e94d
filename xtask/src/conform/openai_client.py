"""The official Python client of OpenAI against a gateway: whole and streamed answers, tools of its own, and errors.

Arguments: the address of the API and the secret. Prints what was sent, as JSON.
"""

import json
import sys

import openai
import pydantic

ADDRESS, SECRET = sys.argv[1:]
WORDS = "It is 18 degrees in Paris."
QUESTION = {"role": "user", "content": "How is the weather in Paris?"}
PARAMETERS = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
FUNCTION = {"name": "get_weather", "description": "The weather of a city.", "parameters": PARAMETERS, "strict": True}
CHAT_TOOLS = [{"type": "function", "function": FUNCTION}]
TOOLS = [{"type": "function", **FUNCTION}]
sent = []


def record(request):
    """Keeps a request under the name of the check that sends it."""
    frame = sys._getframe()
    while frame.f_code not in CHECKS:
        frame = frame.f_back
    kept = {header: request.headers.get(header) for header in ("accept", "accept-encoding", "content-type")}
    body = request.read()
    sent.append({
        "check": frame.f_code.co_name,
        "method": request.method,
        "path": request.url.raw_path.decode(),
        "headers": {header: value for header, value in kept.items() if value},
        "body": json.loads(body) if body else None,
    })


def client(secret=SECRET):
    hooks = openai.DefaultHttpxClient(event_hooks={"request": [record]})
    return openai.OpenAI(base_url=ADDRESS, api_key=secret, http_client=hooks)


def same(found, wanted):
    assert found == wanted, f"{found!r} should be {wanted!r}"


def models():
    ids = [model.id for model in client().models.list()]
    assert "openclaw/main" in ids, ids
    same(client().models.retrieve("openclaw/main").id, "openclaw/main")


def chat():
    answer = client().chat.completions.create(model="openclaw", messages=[QUESTION])
    same(answer.choices[0].message.content, WORDS)
    same(answer.choices[0].finish_reason, "stop")
    assert answer.usage.total_tokens > 0, answer.usage


def chat_stream():
    options = {"include_usage": True}
    chunks = list(client().chat.completions.create(
        model="openclaw:main", messages=[QUESTION], stream=True, stream_options=options, user="Ann",
    ))
    same("".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices), WORDS)
    same([chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1], "stop")
    assert chunks[-1].usage.total_tokens > 0, chunks[-1]


def chat_tools():
    first = client().chat.completions.create(model="openclaw", messages=[QUESTION], tools=CHAT_TOOLS)
    same(first.choices[0].finish_reason, "tool_calls")
    message = first.choices[0].message
    call = message.tool_calls[0]
    same((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Paris"}))
    result = {"role": "tool", "tool_call_id": call.id, "content": "18"}
    messages = [QUESTION, message, result]
    second = client().chat.completions.create(model="openclaw", messages=messages, tools=CHAT_TOOLS)
    same(second.choices[0].message.content, WORDS)


def chat_tools_stream():
    with client().chat.completions.stream(model="openclaw", messages=[QUESTION], tools=CHAT_TOOLS) as stream:
        message = stream.get_final_completion().choices[0].message
    call = message.tool_calls[0]
    same((call.function.name, json.loads(call.function.arguments)), ("get_weather", {"city": "Paris"}))
    kept = {"id": call.id, "type": "function", "function": {"name": "get_weather", "arguments": call.function.arguments}}
    messages = [
        QUESTION,
        {"role": "assistant", "content": None, "tool_calls": [kept]},
        {"role": "tool", "tool_call_id": call.id, "content": [{"type": "text", "text": "18"}]},
    ]
    with client().chat.completions.stream(model="openclaw", messages=messages, tools=CHAT_TOOLS) as stream:
        same(stream.get_final_completion().choices[0].message.content, WORDS)


class Place(pydantic.BaseModel):
    city: str
    celsius: int


def chat_json():
    answer = client().chat.completions.parse(model="openclaw", messages=[QUESTION], response_format=Place)
    same(answer.choices[0].message.parsed, Place(city="Paris", celsius=18))


def responses():
    answer = client().responses.create(model="openclaw", input="How is the weather?", instructions="Be brief.")
    same((answer.output_text, answer.status), (WORDS, "completed"))
    assert answer.usage.total_tokens > 0, answer.usage
    more = client().responses.create(model="openclaw", input="And now?", previous_response_id=answer.id)
    same(more.output_text, WORDS)


def responses_stream():
    with client().responses.stream(model="openclaw", input=[QUESTION]) as stream:
        kinds = [event.type for event in stream]
        same(stream.get_final_response().output_text, WORDS)
    same((kinds[0], kinds[-1]), ("response.created", "response.completed"))


def responses_tools():
    first = client().responses.create(model="openclaw", input=[QUESTION], tools=TOOLS)
    call = first.output[0]
    same((call.type, call.name, json.loads(call.arguments)), ("function_call", "get_weather", {"city": "Paris"}))
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "18"}
    second = client().responses.create(
        model="openclaw", input=[result], tools=TOOLS, previous_response_id=first.id,
    )
    same(second.output_text, WORDS)


def responses_tools_stream():
    with client().responses.stream(model="openclaw", input=[QUESTION], tools=TOOLS) as stream:
        first = stream.get_final_response()
    call = first.output[0]
    same((call.type, call.name, json.loads(call.arguments)), ("function_call", "get_weather", {"city": "Paris"}))
    kept = {"type": "function_call", "call_id": call.call_id, "name": call.name, "arguments": call.arguments}
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "18"}
    events = client().responses.create(model="openclaw", input=[QUESTION, kept, result], tools=TOOLS, stream=True)
    same("".join(event.delta for event in events if event.type == "response.output_text.delta"), WORDS)


def errors():
    for kind, secret, model, messages in [
        (openai.AuthenticationError, "wrong", "openclaw", [QUESTION]),
        (openai.NotFoundError, SECRET, "openclaw/nobody", [QUESTION]),
        (openai.BadRequestError, SECRET, "openclaw", []),
    ]:
        try:
            client(secret).chat.completions.create(model=model, messages=messages)
        except kind:
            continue
        raise AssertionError(f"{kind.__name__} was not raised")


ALL = [
    models, chat, chat_stream, chat_tools, chat_tools_stream, chat_json,
    responses, responses_stream, responses_tools, responses_tools_stream, errors,
]
CHECKS = {check.__code__ for check in ALL}
for check in ALL:
    check()
print(json.dumps(sent))
