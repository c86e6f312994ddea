"""Replies of chat models and base models that hold a right program, in the forms they use."""

import textwrap

WRONG = "def {name}(*args, **kwargs):\n    return 'a draft'"
THOUGHT = f"<think>Perhaps:\n```python\n{WRONG}\n```\nNo.</think>\n\n"
HELPER = 'def helper(x):\n    """Double it.\n\n    ```\n    helper(2)\n    ```\n    """\n'
# {code} is the program, {name} the function that it defines.
FENCED = {
    "python": "```python\n{code}\n```",
    "py": "```py\n{code}\n```",
    "python3": "```python3\n{code}\n```",
    "python 3.11": "```python3.11\n{code}\n```",
    "capital": "```Python\n{code}\n```",
    "attributes": "```{{.python .numberLines}}\n{code}\n```",
    "file name": "```python title=solution.py\n{code}\n```",
    "no language": "```\n{code}\n```",
    "four ticks": "````python\n{code}\n````",
    "tildes": "~~~python\n{code}\n~~~",
    "prose": "Here is the function:\n\n```python\n{code}\n```\n\nIt takes linear time, O(n).",
    "heading": "### Solution\n\n```python\n{code}\n```\n\n### Explanation\n\n- It is `fast`.\n",
    "then a use": "```python\n{code}\n```\nExample usage:\n```python\nprint({name})\n```",
    "then a use by name": "```python\n{code}\n```\n```python\nx = {name}\nprint(x, x, x, x)\n```",
    "then tests": "```python\n{code}\n```\nTests:\n```python\nassert callable({name})\n```",
    "then output": "```python\n{code}\n```\nOutput:\n```\n1 2 3\n```",
    "then a shell": "```python\n{code}\n```\nRun it:\n```bash\npython solution.py\n```",
    "after a shell": "```bash\npip install numpy pandas and many more\n```\n```python\n{code}\n```",
    "untagged, then a shell": "```\n{code}\n```\n```bash\npython solution.py\n```",
    "untagged, then output": "```\n{code}\n```\n```text\n[1, 2]\n```",
    "tests inside": "```python\n{code}\n\nassert callable({name})\nprint({name})\n```",
    "main inside": '```python\n{code}\n\nif __name__ == "__main__":\n    print({name})\n```',
    "main with exit": '```python\n{code}\n\nif __name__ == "__main__":\n    exit()\n```',
    "after a draft": f"```python\n{WRONG}\n```\nThat is wrong. Better:\n```python\n{{code}}\n```",
    "after a stub": "```python\ndef {name}(...):\n    ...\n```\nSo:\n```python\n{code}\n```",
    "then a fragment": "```python\n{code}\n```\nThe head is:\n```python\ndef {name}(a, b, c,\n```",
    "then pieces": "```python\n{code}\n```\n1. Imports:\n```python\nimport math\n```\n2. A loop:\n"
    "```python\nfor i in range(3):\n```",
    "imports apart": "```python\nimport os\n```\nThen:\n```python\n{code}\n```",
    "after a thought": THOUGHT + "```python\n{code}\n```",
    "thought by its end": "It is easy.</think>\n```python\n{code}\n```",
    "not closed": "```python\n{code}",
    "closed on its line": "```python\n{code}```",
    "special token": "```python\n{code}\n```<|im_end|>",
    "tag around": "<answer>\n```python\n{code}\n```\n</answer>",
    "fence in a text": f"```python\n{HELPER}\n\n{{code}}\n```",
    "comment first": "```python\n# solution.py\n{code}\n```",
}
BARE = {
    "alone": "{code}",
    "tag": "<answer>\n{code}\n</answer>",
    "tag of code": "<code>\n{code}\n</code>",
    "tag of Code Llama": "[PYTHON]\n{code}\n[/PYTHON]",
    "sentences": "Sure, this is it:\n\n{code}\n\nIt takes linear time.",
    "bare after a thought": "<think>Is it easy? Yes.</think>\n{code}",
}


def replies(code, name):
    """The program in every form, by the form's name; without a name, those that use none."""
    found = {
        form: text.format(code=code, name=name)
        for form, text in (FENCED | BARE).items()
        if name or "{name}" not in text
    }
    fenced = found["python"]
    found["list"] = "1. So:\n\n" + textwrap.indent(fenced, "   ") + "\n\n2. Done."
    found["quote"] = "\n".join(f"> {line}" for line in fenced.split("\n"))
    found |= {f"{form}, Windows": found[form].replace("\n", "\r\n") for form in ("prose", "alone")}
    return found


def continuations(body):
    """The body of a function in the forms of base models, and of chat models that are asked so."""
    lines = textwrap.dedent(body.strip("\n"))
    return {
        "body": body,
        "body, then a function": f"{body.rstrip()}\n\n\ndef another(x):\n    return x\n",
        "body, then a use": f"{body.rstrip()}\n\nprint('done')\n",
        "body, then main": f'{body.rstrip()}\n\nif __name__ == "__main__":\n    import doctest\n',
        "body, then prose": f"{body.rstrip()}\n\nThis function works.\n",
        "body without its first indent": body.lstrip(),
        "body in a block": f"```python\n{body.rstrip()}\n```",
        "body without an indent": f"```python\n{lines}\n```",
    }
