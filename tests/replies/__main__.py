"""Write replies.jsonl."""

from replies import FILE, made, written

FILE.write_text(written(made()), encoding="utf-8")
