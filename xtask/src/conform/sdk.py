"""Asks the vendors' own SDKs whether they would have sent a request.

Each argument is `<wire>=<file>`. Prints one JSON object: what is wrong with which file, and which deliberately broken
bodies were not refused. A `replay.json` holds its body in `request`.
"""

import json
import sys
import typing

import pydantic
import typing_extensions

# Fields of servers that speak a vendor's wire and add to it. The vendor's own types do not know them.
OTHERS = {
    "openai-completions": {
        "reasoning", "reasoning_content", "reasoning_text", "reasoning_details",
        "cache_control", "chat_template_kwargs", "thinking", "name",
    },
}


def strict(package):
    """Lists are looked into at once, and fields that nobody knows are refused, in every type of a package."""
    for name, module in list(sys.modules.items()):
        if not name.startswith(package):
            continue
        for lazy in ("Iterable", "SequenceNotStr", "Sequence"):
            if hasattr(module, lazy):
                setattr(module, lazy, typing.List)
        for value in list(vars(module).values()):
            if typing_extensions.is_typeddict(value):
                value.__pydantic_config__ = pydantic.ConfigDict(extra="forbid", arbitrary_types_allowed=True)


def typed(package, module, name):
    __import__(module)
    strict(package)
    kind = getattr(sys.modules[module], name)
    validate = pydantic.TypeAdapter(kind).validate_python
    return lambda body: look_into(validate(body))


def look_into(value):
    """What is still lazy is looked into only when somebody reads it."""
    if isinstance(value, dict):
        value = value.values()
    if not isinstance(value, (str, bytes)) and hasattr(value, "__iter__"):
        for inner in value:
            look_into(inner)


def gemini():
    from google.genai import types

    class Body(pydantic.BaseModel):
        model_config = pydantic.ConfigDict(extra="forbid")
        contents: list[types.Content]
        systemInstruction: types.Content | None = None
        tools: list[types.Tool] | None = None
        toolConfig: types.ToolConfig | None = None
        generationConfig: types.GenerationConfig | None = None

    # From JSON, because a picture is bytes in base64.
    return lambda body: Body.model_validate_json(json.dumps(body))


def checkers():
    anthropic = typed("anthropic.", "anthropic.types.message_create_params", "MessageCreateParamsStreaming")
    chat = typed("openai.", "openai.types.chat.completion_create_params", "CompletionCreateParamsStreaming")
    responses = typed("openai.", "openai.types.responses.response_create_params", "ResponseCreateParamsStreaming")
    return {
        "anthropic-messages": anthropic,
        "openai-completions": chat,
        "openai-responses": responses,
        "google-generative-ai": gemini(),
    }


def without(value, names):
    if isinstance(value, dict):
        # What a tool is called and what it takes is the user's, whatever it looks like.
        keep = value.get("type") == "function" or "arguments" in value or "parameters" in value
        return {
            key: without(inner, names)
            for key, inner in value.items()
            if key not in names or (key == "name" and keep)
        }
    if isinstance(value, list):
        return [without(inner, names) for inner in value]
    return value


def broken(wire, body):
    """Copies of a body, each with one thing wrong that a vendor refuses."""
    conversation = {"openai-responses": "input", "google-generative-ai": "contents"}.get(wire, "messages")

    def changed(name, change):
        copy = json.loads(json.dumps(body))
        change(copy)
        return name, copy

    yield changed("an unknown field", lambda copy: copy.update(frobnicate=True))
    if wire != "openai-responses":  # which can go on with what it kept
        yield changed("no conversation", lambda copy: copy.pop(conversation))
    yield changed("a conversation that is a number", lambda copy: copy.update({conversation: 7}))
    yield changed("a message that is a number", lambda copy: copy[conversation].append(7))
    yield changed("a message of an unknown shape", lambda copy: copy[conversation].append({"shape": "unknown"}))
    if calls(wire, body):
        yield changed("a call without a name", lambda copy: calls(wire, copy)[0].pop("name"))


def calls(wire, body):
    """The objects that name the tools that are called. Gemini's type does not insist on a name."""
    if wire == "anthropic-messages":
        blocks = (block for line in body["messages"] for block in line["content"])
        return [block for block in blocks if block["type"] == "tool_use"]
    if wire == "openai-completions":
        return [call["function"] for line in body["messages"] for call in line.get("tool_calls", [])]
    if wire == "openai-responses":
        return [item for item in body["input"] if item.get("type") == "function_call"]
    return []


def complaint(check, body):
    try:
        check(body)
        return None
    except pydantic.ValidationError as error:
        # One that names the place: unions complain once for each of their members.
        worst = max(error.errors(include_url=False), key=lambda wrong: len(wrong["loc"]))
        place = ".".join(str(step) for step in worst["loc"])
        return f"{place}: {worst['msg']} (and {error.error_count() - 1} more)"


def main(arguments):
    checks = checkers()
    wrong, missed, count = {}, [], 0
    for argument in arguments:
        wire, _, path = argument.partition("=")
        with open(path, encoding="utf-8") as file:
            body = json.load(file)
        body = without(body.get("request", body), OTHERS.get(wire, set()))
        count += 1
        told = complaint(checks[wire], body)
        if told:
            wrong[path] = told
            continue
        for name, bad in broken(wire, body):
            if complaint(checks[wire], bad) is None:
                missed.append(f"{path}: {name}")
    print(json.dumps({"checked": count, "wrong": wrong, "missed": missed}))


main(sys.argv[1:])
