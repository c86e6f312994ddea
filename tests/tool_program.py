"""An agent program as a command, without an SDK: it calls tools until the model calls none.

python tool_program.py < prompt
"""

import json
import os
import sys
import urllib.request


def posted(url, body):
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers)
    return json.load(urllib.request.urlopen(request))


def main():
    messages = [{"role": "user", "content": sys.stdin.read()}]
    tools = json.loads(os.environ["LUDIC_TOOLS"])
    for _ in range(3):
        body = {"model": os.environ["LUDIC_MODEL"], "messages": messages, "tools": tools}
        made = posted(os.environ["OPENAI_BASE_URL"] + "/chat/completions", body)
        messages.append(made["choices"][0]["message"])
        for call in messages[-1].get("tool_calls", ()):
            name, arguments = call["function"]["name"], json.loads(call["function"]["arguments"])
            result = posted(f"{os.environ['LUDIC_TOOLS_URL']}/{name}", arguments)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": str(result)})
        if messages[-1]["role"] == "assistant":
            break
    return messages[-1]["content"]


if __name__ == "__main__":
    print(main())
