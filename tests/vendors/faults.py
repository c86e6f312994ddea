"""What servers of the chat route send that is no reply, or a rejected one."""

from ludic_gym.errors import ClientError, QuotaExhausted
from vendors.rows import Row, again, failed, filtered, reply, too_long

FAULTS = [
    *(
        again(f"status {status}", failed("Try later."), status)
        for status in (408, 409, 429, 500, 502, 503, 504, 529)
    ),
    *(
        Row(f"status {status}", failed("No."), status, error=ClientError)
        for status in (400, 401, 403, 404, 422)
    ),
    Row("no credit", failed("No."), 402, error=QuotaExhausted),
    again("an error of OpenRouter with status 200", failed("no server", code=502)),
    again("an error with status 200 whose code is a text", failed("no server", code="503")),
    again("an error with status 200 by its type", failed("busy", type="overloaded_error")),
    again("an error with status 200 that names nothing", {"error": "upstream failed"}),
    again(
        "an error in the choice, with status 200",
        {
            "choices": [
                {
                    "error": {"code": 502, "message": "gone"},
                    "message": {"content": "2"},
                    "finish_reason": "error",
                }
            ]
        },
    ),
    again("no choices", {"choices": []}),
    again("choices null", {"choices": None}),
    Row(
        "an error of the request with status 200",
        failed("no such model", code=404),
        error=ClientError,
    ),
    Row("an error null beside a reply", {**reply(content="4"), "error": None}, text="4"),
    Row("a page of a proxy", '<html>"error"</html>', text="good", tries=2),
    too_long(
        "OpenAI",
        400,
        "This model's maximum context length is 100 tokens. However, you requested 140 tokens.",
    ),
    too_long("OpenAI by its code", 400, failed("Too much.", code="context_length_exceeded")),
    too_long("Azure in 429", 429, "Request too large for gpt on tokens per min: Limit 100"),
    too_long(
        "Gemini",
        400,
        [failed("The input token count (140) exceeds the maximum number of tokens allowed (100).")],
    ),
    too_long(
        "Gemma at Google",
        400,
        "Unable to submit request because the input token count is 140 but model only supports up "
        "to 100.",
    ),
    too_long("Bedrock", 400, "Input is too long for requested model."),
    too_long(
        "xAI", 400, "This model's maximum prompt length is 100 but the request contains 140 tokens."
    ),
    too_long("Anthropic", 400, "input length and `max_tokens` exceed context limit: 90 + 32 > 100"),
    too_long("Cohere", 400, "too many tokens: total number of tokens cannot exceed 100"),
    too_long(
        "Together",
        422,
        "`inputs` tokens + `max_new_tokens` must be <= 100. Given: 140 `inputs` tokens",
    ),
    too_long("Groq", 413, "Request too large for model, please reduce your message size."),
    too_long("LiteLLM", 400, "litellm.ContextWindowExceededError: too many tokens"),
    too_long(
        "Moonshot",
        400,
        "Invalid request: Your request exceeded model token limit: 100 (requested: 140)",
    ),
    too_long("Zhipu", 400, failed("Prompt \u8d85\u957f", code="1261")),
    too_long("Alibaba", 400, "Range of input length should be [1, 100]"),
    too_long("Poolside", 400, "Input length 140 exceeds the maximum allowed input length of 100"),
    too_long(
        "Mistral",
        400,
        {
            "message": "Prompt contains 140 tokens, too large for model with 100 "
            "maximum context length",
            "code": "3051",
        },
    ),
    too_long(
        "vLLM",
        400,
        {
            "object": "error",
            "message": "The prompt (length 140) is longer than the maximum model length of 100.",
        },
    ),
    too_long(
        "SGLang",
        400,
        "The input (140 tokens) is longer than the model's context length (100 tokens).",
    ),
    too_long(
        "llama.cpp",
        500,
        failed(
            "the request exceeds the available context size",
            code=500,
            type="exceed_context_size_error",
        ),
    ),
    too_long(
        "llama.cpp with status 200",
        200,
        failed("exceeds the available context size", code=400, type="exceed_context_size_error"),
    ),
    too_long("llama-cpp-python", 500, "Requested tokens (140) exceed context window of 100"),
    Row(
        "a status of the key, whatever its words",
        failed("Request too large."),
        401,
        error=ClientError,
    ),
    again("too many tokens a minute, as of Bedrock", failed("Too many tokens, please wait."), 429),
    filtered(
        "Azure",
        400,
        "The response was filtered due to the prompt triggering Azure OpenAI's "
        "content management policy.",
        code="content_filter",
    ),
    filtered(
        "OpenAI",
        400,
        "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
        code="invalid_prompt",
    ),
    filtered("DeepSeek", 400, "Content Exists Risk"),
    filtered(
        "Alibaba",
        400,
        "Input data may contain inappropriate content.",
        code="data_inspection_failed",
    ),
    filtered("xAI", 403, "Content violates usage guidelines."),
    filtered(
        "Moonshot",
        400,
        "The request was rejected because it was considered high risk",
        type="content_filter",
    ),
]
