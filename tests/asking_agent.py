"""An agent program as a function, which other processes and commands can name."""

import openai


async def play(task):
    """Send the prompt, answer with the reply."""
    system = [{"role": "system", "content": task.system_prompt}] if task.system_prompt else []
    async with openai.AsyncOpenAI(base_url=task.base_url, api_key="x") as client:
        made = await client.chat.completions.create(
            model="m", messages=[*system, {"role": "user", "content": task.prompt}], temperature=0
        )
    return made.choices[0].message.content
