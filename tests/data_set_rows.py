"""One row of each published data set, in its columns and types; the contents are made here.

A value is the row, a reply that is right, and one that is wrong.
"""

import json

GRID = "534678912672195348198342567859761423426853791713924856961537284287419635345286179"
CASES = [{"input": "2\n", "output": "4\n"}, {"input": "5\n", "output": "10\n"}]
DOUBLE = "n = int(input())\nprint(2 * n)"
SAME = "print(input())"
TWICE = "def twice(n):\n    return 2 * n"
ONCE = "def twice(n):\n    return n"
METHOD = "class Solution:\n    def twice(self, n: int) -> int:\n        return {} * n"
STARTER = "class Solution:\n    def twice(self, n: int) -> int:\n        "


def verl(question, truth, **others):
    """A row of verl."""
    return {
        "data_source": "made/here",
        "prompt": [{"content": question, "role": "user"}],
        "ability": "math",
        "reward_model": {"ground_truth": truth, "style": "rule"},
        "extra_info": {"index": 0, "split": "train"},
        **others,
    }


def program(text):
    """A reply with a program."""
    return f"Here it is:\n```python\n{text}\n```"


BIRD_QUERY = "SELECT name FROM ships WHERE length > 20"
SQL_ROW = {"db_id": "harbour", "question": "Which ships are longer than 20 metres?"}

ROWS = {
    "gsm8k": (
        {"question": "Ann has 3 bags of 4 nuts. How many nuts?",
         "answer": "3*4=<<3*4=12>>12\n#### 12"},
        "<answer>12</answer>",
        "<answer>7</answer>",
    ),
    "svamp": (
        {
            "ID": "chal-1",
            "Body": "Jim had 9 pens and lost 4 pens.",
            "Question": "How many pens does he have now?",
            "Equation": "( 9.0 - 4.0 )",
            "Answer": "5.0",
            "Type": "Subtraction",
        },
        "So he has\n<answer>5</answer>",
        "<answer>13</answer>",
    ),
    "math": (
        {
            "problem": "Find $x$ if $2x = 1$.",
            "level": "Level 2",
            "type": "Algebra",
            "solution": "We divide: $x = \\boxed{\\frac{1}{2}}$.",
        },
        "\\boxed{0.5}",
        "\\boxed{2}",
    ),
    "math-500": (
        {
            "problem": "What is $3^2$?",
            "solution": "It is $\\boxed{9}$.",
            "answer": "9",
            "subject": "Prealgebra",
            "level": 1,
            "unique_id": "test/prealgebra/1.json",
        },
        "\\boxed{9}",
        "\\boxed{6}",
    ),
    "deepscaler": (
        {"problem": "Simplify $\\sqrt{8}$.", "answer": "2\\sqrt{2}", "solution": ""},
        "\\boxed{2\\sqrt{2}}",
        "\\boxed{4}",
    ),
    "openr1-math": (
        {
            "problem": "What is the sum of the first 10 positive integers?",
            "solution": "It is $55$.",
            "answer": "55",
            "problem_type": "Algebra",
            "question_type": "math-word-problem",
            "source": "olympiads",
            "uuid": "00000000-0000-0000-0000-000000000000",
            "is_reasoning_complete": [True, False],
            "generations": ["<think>...</think> \\boxed{55}", "..."],
            "correctness_math_verify": [True, False],
            "correctness_llama": None,
            "finish_reasons": None,
            "correctness_count": 1,
            "messages": [
                {"role": "user", "content": "What is the sum of the first 10 positive integers?"},
                {"role": "assistant", "content": "\\boxed{56}"},
            ],
        },
        "\\boxed{55}",
        "\\boxed{56}",
    ),
    "numinamath-cot": (
        {
            "source": "cn_k12",
            "problem": "A line has slope $3$ and passes through the origin. Find $y$ at $x=2$.",
            "solution": "First $y = 3x$, so that $y = \\boxed{6}$.",
            "messages": [
                {"role": "user", "content": "..."},
                {"role": "assistant", "content": "$\\boxed{6}$"},
            ],
        },
        "\\boxed{6}",
        "\\boxed{3}",
    ),
    "numinamath-1-5": (
        {
            "problem": "How many primes are below 12?",
            "solution": "2, 3, 5, 7, 11",
            "answer": "5",
            "problem_type": "Number Theory",
            "question_type": "math-word-problem",
            "problem_is_valid": "Yes",
            "solution_is_valid": "Yes",
            "source": "olympiads",
            "synthetic": False,
        },
        "\\boxed{5}",
        "\\boxed{4}",
    ),
    "big-math": (
        {
            "problem": "Find the remainder of $17$ divided by $5$.",
            "answer": "2",
            "source": "orca_math",
            "domain": ["Mathematics -> Number Theory -> Other"],
            "llama8b_solve_rate": 0.84375,
        },
        "\\boxed{2}",
        "\\boxed{3}",
    ),
    "omni-math": (
        {
            "domain": ["Mathematics -> Algebra -> Other"],
            "difficulty": 4.5,
            "problem": "Find all real $x$ with $x^2 = 9$ and $x > 0$.",
            "solution": "$x = 3$.",
            "answer": "3",
            "source": "HMMT_2",
        },
        "\\boxed{3}",
        "\\boxed{-3}",
    ),
    "polaris": (
        {"problem": "Compute $5!$.", "answer": "120", "difficulty": "3/8"},
        "\\boxed{120}",
        "\\boxed{25}",
    ),
    "deepmath": (
        {
            "question": "Evaluate $\\int_0^1 2x\\,dx$.",
            "final_answer": "1",
            "difficulty": 3.0,
            "topic": "Mathematics -> Calculus",
            "r1_solution_1": "...",
            "r1_solution_2": "...",
            "r1_solution_3": "...",
        },
        "\\boxed{1}",
        "\\boxed{2}",
    ),
    "olympiadbench": (
        {
            "id": 1,
            "question": "Find the largest of $a$, $b$.",
            "solution": ["We get $7$."],
            "final_answer": ["$7$"],
            "context": "Let $a = 3$ and $b = 7$.",
            "image_1": None,
            "modality": "Text-only",
            "difficulty": "Competition",
            "is_multiple_answer": False,
            "unit": None,
            "answer_type": "Numerical",
            "error": None,
            "question_type": "Open-ended",
            "subfield": "Algebra",
            "subject": "Math",
            "language": "English",
        },
        "\\boxed{7}",
        "\\boxed{3}",
    ),
    "minerva": (
        {"question": "A star is 10 pc away. What is its parallax in arcseconds?", "answer": "0.1"},
        "\\boxed{0.1}",
        "\\boxed{10}",
    ),
    "amc23": (
        {"id": 0, "question": "How many hours are in 2 days?", "answer": "48.0", "url": "..."},
        "\\boxed{48}",
        "\\boxed{24}",
    ),
    "amc-aimo": (
        {"id": 0, "problem": "What is $3+\\frac{1}{2}$ doubled?", "answer": 7.0, "url": "..."},
        "\\boxed{7}",
        "\\boxed{3}",
    ),
    "hmmt": (
        {
            "problem_idx": 1,
            "problem": "Compute $\\frac{1}{2} + \\frac{1}{3}$.",
            "answer": "\\frac{5}{6}",
            "problem_type": ["Algebra"],
        },
        "\\boxed{5/6}",
        "\\boxed{2/5}",
    ),
    "aime": (
        {"id": 60, "problem": "Find 5 times 5.", "solution": "...", "answer": "025", "url": "...",
         "year": "2024"},
        "\\boxed{25}",
        "\\boxed{10}",
    ),
    "aime-2024-jia": (
        {"ID": "2024-I-1", "Problem": "Find 6 times 6.", "Solution": "...", "Answer": 36},
        "\\boxed{036}",
        "\\boxed{12}",
    ),
    "aime-2024-boxed": (
        {"id": 60, "problem": "Find 7 times 7.", "solution": "\\boxed{49}", "url": "..."},
        "\\boxed{49}",
        "\\boxed{14}",
    ),
    "aime-aimo": (
        {"id": 0, "problem": "Find 8 times 8.", "solution": "It is 64.", "answer": "64",
         "url": "..."},
        "\\boxed{64}",
        "\\boxed{16}",
    ),
    "aime-1983-2024": (
        {"ID": "1983-1", "Year": 1983, "Problem Number": 1, "Question": "Find 9 times 9.",
         "Answer": "81", "Part": None},
        "\\boxed{81}",
        "\\boxed{18}",
    ),
    "aime-2025": (
        {"question": "Find the angle, in degrees, of 336 of 360 parts of a circle.",
         "answer": "336^\\circ"},
        "\\boxed{336}",
        "\\boxed{24}",
    ),
    "aime-2025-matharena": (
        {"problem_idx": 1, "problem": "Find 7 times 10.", "answer": 70,
         "problem_type": ["Number Theory"]},
        "\\boxed{70}",
        "\\boxed{17}",
    ),
    "aime-2025-math-ai": (
        {"problem": "Find 20 times 20.", "answer": "400", "id": "0"},
        "\\boxed{400}",
        "\\boxed{40}",
    ),
    "dapo-math": (
        verl("Solve the problem. The last line is Answer: $Answer.\n\nFind $3 \\cdot 11$.", "33",
             ability="MATH", extra_info={"index": "9a9b6eb4-a1cb-49d1-8c1e-62eaf2f74079"}),
        "\\boxed{33}",
        "\\boxed{14}",
    ),
    "dapo-math-processed": (
        {
            "prompt": "Find $4 \\cdot 11$.",
            "solution": "44",
            "data_source": "math_dapo",
            "source_prompt": [{"content": "Solve it.\n\nFind $4 \\cdot 11$.", "role": "user"}],
            "ability": "MATH",
            "reward_model": {"ground_truth": "44", "style": "rule-lighteval/MATH_v2"},
            "extra_info": {"index": "9a9b6eb4"},
        },
        "\\boxed{44}",
        "\\boxed{15}",
    ),
    "eurus-2-maths": (
        verl("", "\\frac{2}{3}", prompt=[
            {"content": "When tackling complex problems, think.", "role": "system"},
            {"content": "Reduce $\\frac{4}{6}$.\n\nPresent the answer in \\boxed{}.",
             "role": "user"},
        ]),
        "\\boxed{\\frac{2}{3}}",
        "\\boxed{\\frac{3}{2}}",
    ),
    "verl": (
        verl("What is 6 + 8? Let's think step by step and put the answer after ####.", "14"),
        "#### 14",
        "#### 48",
    ),
    "prompt-answer": (
        {"prompt": "What is $10 - 3$?", "answer": 7},
        "\\boxed{7}",
        "\\boxed{13}",
    ),
    "messages": (
        {
            "messages": [
                {"role": "system", "content": "You are good at sums."},
                {"role": "user", "content": "What is $2 + 9$?"},
                {"role": "assistant", "content": "We add: $\\boxed{11}$."},
            ]
        },
        "\\boxed{11}",
        "\\boxed{18}",
    ),
    "conversations": (
        {
            "conversations": [
                {"from": "human", "value": "What is 3 + 9?"},
                {"from": "gpt", "value": "We add.\n#### 12"},
            ]
        },
        "<answer>12</answer>",
        "<answer>27</answer>",
    ),
    "mmlu": (
        {"question": "Which is a prime?", "subject": "abstract_algebra",
         "choices": ["4", "5", "6", "8"], "answer": 1},
        "5",
        "6",
    ),
    "mmlu-pro": (
        {"question_id": 70, "question": "Which planet is the largest?",
         "options": ["Venus", "Jupiter", "Mars"], "answer": "B", "answer_index": 1,
         "cot_content": "", "category": "physics", "src": "ori"},
        "Jupiter",
        "Mars",
    ),
    "gpqa": (
        {"Question": "Which planet is the smallest?", "Correct Answer": "Mercury\n",
         "Incorrect Answer 1": "Venus", "Incorrect Answer 2": "Mars",
         "Incorrect Answer 3": "Earth", "Subdomain": "Astronomy", "Record ID": "rec0"},
        "Mercury",
        "Venus",
    ),
    "arc": (
        {"id": "Mercury_1", "question": "What melts?",
         "choices": {"text": ["stone", "ice", "sand", "air"], "label": ["1", "2", "3", "4"]},
         "answerKey": "2"},
        "ice",
        "sand",
    ),
    "arc-release": (
        {"id": "Mercury_2",
         "question": {"stem": "What burns?",
                      "choices": [{"text": "wood", "label": "A"}, {"text": "iron", "label": "B"}]},
         "answerKey": "A"},
        "wood",
        "iron",
    ),
    "commonsenseqa": (
        {"id": "0", "question": "Where is milk kept cold?", "question_concept": "milk",
         "choices": {"label": ["A", "B", "C", "D", "E"],
                     "text": ["oven", "shelf", "refrigerator", "garden", "car"]},
         "answerKey": "C"},
        "refrigerator",
        "oven",
    ),
    "openbookqa": (
        {"id": "7-1", "question_stem": "A plant needs",
         "choices": {"text": ["light", "salt", "paint", "glass"], "label": ["A", "B", "C", "D"]},
         "answerKey": "A"},
        "light",
        "salt",
    ),
    "hellaswag": (
        {"ind": 4, "activity_label": "Cooking", "ctx_a": "A man cracks an egg.", "ctx_b": "he",
         "ctx": "A man cracks an egg. he", "endings": ["flies.", "fries it.", "sings.", "is red."],
         "source_id": "activitynet~v_1", "split": "val", "split_type": "indomain", "label": "1"},
        "fries it.",
        "sings.",
    ),
    "truthfulqa": (
        {"question": "What happens if you swallow gum?",
         "mc1_targets": {"choices": ["It passes through you", "It stays for seven years"],
                         "labels": [1, 0]},
         "mc2_targets": {"choices": ["It passes through you", "It stays"], "labels": [1, 0]}},
        "It passes through you",
        "It stays for seven years",
    ),
    "sciq": (
        {"question": "What do bees make?", "distractor3": "milk", "distractor1": "silk",
         "distractor2": "oil", "correct_answer": "honey", "support": ""},
        "honey",
        "milk",
    ),
    "piqa": (
        {"goal": "To dry a cup,", "sol1": "put it into water.", "sol2": "wipe it with a towel.",
         "label": 1},
        "wipe it with a towel.",
        "put it into water.",
    ),
    "race": (
        {"example_id": "high1.txt", "article": "Tom has a red bicycle.", "answer": "C",
         "question": "What is red?", "options": ["The house", "The cat", "The bicycle", "Tom"]},
        "The bicycle",
        "Tom",
    ),
    "medmcqa": (
        {"id": "e9", "question": "Which vitamin is in oranges?", "opa": "A", "opb": "C", "opc": "D",
         "opd": "K", "cop": 1, "choice_type": "single", "exp": None,
         "subject_name": "Biochemistry", "topic_name": None},
        "C",
        "A",
    ),
    "medqa": (
        {"question": "Which organ pumps blood?", "answer": "Heart",
         "options": {"A": "Liver", "B": "Heart", "C": "Lung", "D": "Kidney"},
         "meta_info": "step1", "answer_idx": "B", "metamap_phrases": []},
        "Heart",
        "Lung",
    ),
    "ceval": (
        {"id": 0, "question": "How many bits has a byte?", "A": "4", "B": "8", "C": "16", "D": "32",
         "answer": "B", "explanation": ""},
        "8",
        "16",
    ),
    "nq-open": (
        {"question": "where is the louvre", "answer": ["Paris", "Paris, France"]},
        "<answer>Paris</answer>",
        "<answer>Rome</answer>",
    ),
    "webquestions": (
        {"url": "http://www.freebase.com/view/en/x", "question": "who painted the mona lisa?",
         "answers": ["Leonardo da Vinci"]},
        "<answer>leonardo da vinci</answer>",
        "<answer>Raphael</answer>",
    ),
    "triviaqa": (
        {"question": "Which ocean is the largest?", "question_id": "tc_1",
         "question_source": "http://www.triviacountry.com/",
         "entity_pages": {"doc_source": [], "filename": [], "title": [], "wiki_context": []},
         "search_results": {"description": [], "filename": [], "rank": [], "title": []},
         "answer": {"aliases": ["The Pacific", "Pacific Ocean"], "value": "Pacific",
                    "normalized_aliases": ["pacific"], "matched_wiki_entity_name": "",
                    "normalized_matched_wiki_entity_name": "", "normalized_value": "pacific",
                    "type": "WikipediaEntity"}},
        "<answer>Pacific Ocean</answer>",
        "<answer>Atlantic</answer>",
    ),
    "triviaqa-release": (
        {"Question": "Which desert is the largest hot one?", "QuestionId": "tc_2",
         "QuestionSource": "http://www.triviacountry.com/", "SearchResults": [], "EntityPages": [],
         "Answer": {"Aliases": ["Sahara desert"], "Value": "Sahara", "NormalizedValue": "sahara",
                    "NormalizedAliases": ["sahara"], "Type": "WikipediaEntity"}},
        "<answer>the Sahara</answer>",
        "<answer>Gobi</answer>",
    ),
    "squad": (
        {"id": "5733", "title": "Bees", "context": "Bees live in hives and make honey.",
         "question": "Where do bees live?", "answers": {"text": ["hives", "in hives"],
                                                        "answer_start": [13, 10]}},
        "<answer>in hives</answer>",
        "<answer>honey</answer>",
    ),
    "simpleqa": (
        {"metadata": "{'topic': 'Geography', 'answer_type': 'Place', 'urls': []}",
         "problem": "What is the capital of Peru?", "answer": "Lima"},
        "<answer>Lima</answer>",
        "<answer>Cusco</answer>",
    ),
    "truthfulqa-generation": (
        {"type": "Adversarial", "category": "Misconceptions", "question": "What colour is the sun?",
         "best_answer": "White", "correct_answers": ["White", "The sun is white"],
         "incorrect_answers": ["Yellow"], "source": "..."},
        "<answer>white</answer>",
        "<answer>Yellow</answer>",
    ),
    "ifeval": (
        {"key": 1000, "prompt": "Write a line. Use no commas.",
         "instruction_id_list": ["punctuation:no_comma"], "kwargs": [{"num_words": None}]},
        "A line without them.",
        "A line, with one.",
    ),
    "ifbench": (
        {"key": "1", "prompt": "Write a line. Use exactly 3 numbers.",
         "instruction_id_list": ["count:numbers"], "kwargs": [{"N": 3.0, "keyword": None}]},
        "It took 12 men 7 days to move 30 stones.",
        "It took 12 men 7 days to move the stones.",
    ),
    "bbh": (
        {"input": "not ( True ) is", "target": "False"},
        "So the answer is False.",
        "So the answer is True.",
    ),
    "drop": (
        {"section_id": "nfl_1", "query_id": "q1", "passage": "The Bears scored 7 points.",
         "question": "How many points did the Bears score?",
         "answers_spans": {"spans": ["7"], "types": ["number"]}},
        "<answer>7</answer>",
        "<answer>3</answer>",
    ),
    "hotpotqa": (
        {"id": "5a8b", "question": "Are both towers in Paris?", "answer": "yes",
         "type": "comparison", "level": "hard",
         "supporting_facts": {"title": ["Eiffel Tower"], "sent_id": [0]},
         "context": {"title": ["Eiffel Tower", "Tour First"],
                     "sentences": [["It is in Paris.", " It is tall."], ["In Paris."]]}},
        "<answer>yes</answer>",
        "<answer>no</answer>",
    ),
    "humaneval": (
        {"task_id": "HumanEval/0", "prompt": 'def twice(n):\n    """Twice n."""\n',
         "canonical_solution": "    return 2 * n\n", "entry_point": "twice",
         "test": "def check(candidate):\n    assert candidate(2) == 4\n"},
        program(TWICE),
        program(ONCE),
    ),
    "humaneval-plus": (
        {"task_id": "HumanEval/0", "prompt": 'def twice(n):\n    """Twice n."""\n',
         "canonical_solution": "    return 2 * n\n", "entry_point": "twice",
         "test": "import numpy as np\n\ndef assertion(out, exp, atol):\n    assert out == exp\n\n"
                 "def check(candidate):\n    inputs = [[2], [-3]]\n    results = [4, -6]\n"
                 "    for i, (inp, exp) in enumerate(zip(inputs, results)):\n"
                 "        assertion(candidate(*inp), exp, 0)\n"},
        program(TWICE),
        program(ONCE),
    ),
    "mbpp": (
        {"source_file": "a.ipynb", "task_id": 2, "prompt": "Write a function for twice a number.",
         "code": TWICE, "test_imports": [], "test_list": ["assert twice(2) == 4",
                                                           "assert twice(0) == 0"]},
        program(TWICE),
        program(ONCE),
    ),
    "mbpp-plus": (
        {"task_id": 2, "code": TWICE, "prompt": "Write a function for twice a number.",
         "source_file": "a.ipynb", "test_imports": [], "test_list": ["assert twice(2) == 4"],
         "test": "import numpy as np\n\ninputs = [[2], [-3]]\nresults = [4, -6]\n"
                 "for i, (inp, exp) in enumerate(zip(inputs, results)):\n"
                 "    assertion(twice(*inp), exp, 0)\n"},
        program(TWICE),
        program(ONCE),
    ),
    "own-programs": (
        {"prompt": "Print twice the number.", "cases": [["2\n", "4\n"], ["5\n", "10\n"]],
         "solution": DOUBLE},
        program(DOUBLE),
        program(SAME),
    ),
    "apps": (
        {"problem_id": 0, "question": "Print twice the number.", "solutions": json.dumps([DOUBLE]),
         "input_output": json.dumps({"inputs": ["2\n", "5\n"], "outputs": ["4\n", "10\n"]}),
         "difficulty": "interview", "url": "...", "starter_code": ""},
        program(DOUBLE),
        program(SAME),
    ),
    "taco": (
        {"question": "Return twice the number.", "solutions": json.dumps([METHOD.format(2)]),
         "starter_code": STARTER, "difficulty": "EASY", "raw_tags": "[]", "name": None,
         "input_output": json.dumps({"fn_name": "twice", "inputs": [[2], [5]],
                                     "outputs": [[4], [10]]}),
         "source": "leetcode", "tags": "[]", "skill_types": "[]", "url": None,
         "Expected Auxiliary Space": None, "time_limit": None, "date": None, "picture_num": None,
         "memory_limit": None, "Expected Time Complexity": None},
        program(METHOD.format(2)),
        program(METHOD.format(3)),
    ),
    "livecodebench": (
        {"question_title": "Twice", "question_content": "Print twice the number.",
         "platform": "atcoder", "question_id": "abc", "contest_id": "abc", "contest_date": "2024",
         "starter_code": "", "difficulty": "easy",
         "public_test_cases": json.dumps([{**case, "testtype": "stdin"} for case in CASES[:1]]),
         "private_test_cases": json.dumps([{**case, "testtype": "stdin"} for case in CASES[1:]]),
         "metadata": "{}"},
        program(DOUBLE),
        program(SAME),
    ),
    "code-contests": (
        {"name": "1_A. Twice", "description": "Print twice the number.",
         "public_tests": {"input": ["2\n"], "output": ["4\n"]},
         "private_tests": {"input": [], "output": []},
         "generated_tests": {"input": ["5\n", "0\n"], "output": ["10\n", "0\n"]},
         "source": 2, "difficulty": 7,
         "solutions": {"language": [2, 1, 3], "solution": ["int main() {}", "print 1", DOUBLE]},
         "incorrect_solutions": {"language": [3], "solution": [SAME]},
         "cf_contest_id": 1, "cf_index": "A", "cf_points": 0.0, "cf_rating": 800, "cf_tags": [""],
         "is_description_translated": False, "untranslated_description": "",
         "time_limit": {"seconds": 2, "nanos": 0}, "memory_limit_bytes": 256000000,
         "input_file": "", "output_file": ""},
        program(DOUBLE),
        program(SAME),
    ),
    "deepcoder": (
        {"problem": "Print twice the number.", "solutions": [program(DOUBLE)],
         "tests": json.dumps([{"type": "stdin_stdout", **case} for case in CASES])},
        program(DOUBLE),
        program(SAME),
    ),
    "eurus-2-code": (
        verl("Print twice the number.", json.dumps({"inputs": ["2\n", "5\n"],
                                                    "outputs": ["4\n", "10\n"]}), ability="code"),
        program(DOUBLE),
        program(SAME),
    ),
    "own-queries": (
        {"question": SQL_ROW["question"], "schema": "CREATE TABLE ships (name TEXT, length REAL);",
         "data": "INSERT INTO ships VALUES ('Anna', 31), ('Bo', 12);", "query": BIRD_QUERY},
        f"```sql\n{BIRD_QUERY}\n```",
        "```sql\nSELECT name FROM ships\n```",
    ),
    "spider": (
        {**SQL_ROW, "query": BIRD_QUERY, "query_toks": [], "question_toks": []},
        f"```sql\n{BIRD_QUERY}\n```",
        "```sql\nSELECT name FROM ships\n```",
    ),
    "bird": (
        {**SQL_ROW, "question_id": 0, "evidence": "length is in metres", "SQL": BIRD_QUERY,
         "difficulty": "simple"},
        f"```sql\n{BIRD_QUERY}\n```",
        "```sql\nSELECT name FROM ships\n```",
    ),
    "countdown": (
        {"target": 31, "nums": [7, 3, 10]},
        "<answer>7 * 3 + 10</answer>",
        "<answer>7 * 10 - 3</answer>",
    ),
    "sudoku": ({"quizzes": GRID.replace("1", "0"), "solutions": GRID}, GRID, GRID[::-1]),
    "sudoku-extreme": (
        {"source": "puzzles0", "question": GRID.replace("9", "."), "answer": GRID, "rating": 4},
        f"<answer>{GRID}</answer>",
        f"<answer>{GRID[::-1]}</answer>",
    ),
    "knights-and-knaves": (
        {"quiz": "Zoe and Max live on an island. Zoe says: Max lies. Max says: we both lie.",
         "names": ["Zoe", "Max"], "knight_knave": {"knight": "knight", "knave": "knave"},
         "solution": [True, False], "solution_text": "Zoe is a knight, and Max is a knave.",
         "statements": "...", "index": 0},
        "<answer>Zoe is a knight, Max is a knave</answer>",
        "<answer>knave, knave</answer>",
    ),
}  # fmt: skip

# Further forms in which some of the sets are published.
FORMS = {
    "deepcoder, function calls": ("deepcoder", {
        "problem": "Return twice the number.", "solutions": [program(TWICE)],
        "tests": json.dumps([{"type": "function_call", "fn_name": "twice", "input": [2],
                              "output": [4]}])}, program(TWICE), program(ONCE)),
    "deepcoder, TACO": ("deepcoder", {
        "problem": "Return twice the number.", "solutions": [TWICE],
        "tests": json.dumps({"fn_name": "twice", "inputs": [[2], [5]], "outputs": [4, 10]})},
        program(TWICE), program(ONCE)),
    "deepcoder, LiveCodeBench": ("deepcoder", {
        "problem": "Return twice the number.", "starter_code": STARTER,
        "tests": json.dumps([{"input": "2", "output": "4", "testtype": "functional",
                              "metadata": {"func_name": "twice"}}]),
        "metadata": {"func_name": "twice"}},
        program(METHOD.format(2)), program(METHOD.format(1))),
    "deepcoder, Codeforces": ("deepcoder", {
        "problem": "Print twice the number.", "tests": json.dumps(CASES)},
        program(DOUBLE), program(SAME)),
    "mbpp, full": ("mbpp", {
        "task_id": 2, "text": "Write a function for twice a number.", "code": TWICE,
        "test_list": ["assert twice(2) == 4"], "test_setup_code": "", "challenge_test_list": []},
        program(TWICE), program(ONCE)),
    "humaneval-plus, release": ("humaneval-plus", {
        "task_id": "HumanEval/0", "prompt": 'def twice(n):\n    """Twice n."""\n',
        "canonical_solution": "    return 2 * n\n", "entry_point": "twice", "test": "",
        "contract": "", "base_input": [[2]], "plus_input": [[5]], "atol": 0},
        program(TWICE), program(ONCE)),
    "mbpp-plus, release": ("mbpp-plus", {
        "task_id": "Mbpp/2", "prompt": '"""\nWrite a function for twice a number.\n"""\n',
        "entry_point": "twice", "canonical_solution": TWICE, "base_input": [[2]],
        "plus_input": [[5]], "atol": 0, "contract": "", "assertion": "assert twice(2) == 4"},
        program(TWICE), program(ONCE)),
    "livecodebench, functions": ("livecodebench", {
        "question_content": "Return twice the number.", "starter_code": STARTER,
        "public_test_cases": json.dumps([{"input": "2", "output": "4", "testtype": "functional"}]),
        "private_test_cases": json.dumps([]), "metadata": json.dumps({"func_name": "twice"})},
        program(METHOD.format(2)), program(METHOD.format(1))),
    "drop, release": ("drop", {
        "passage": "The Bears scored 7 points.", "qa_pairs": [{
            "question": "How many points did the Bears score?", "query_id": "q",
            "answer": {"number": "7", "date": {}, "spans": []}, "validated_answers": []}]},
        "<answer>7</answer>", "<answer>3</answer>"),
    "ifeval, texts of JSON": ("ifeval", {
        "key": 1, "prompt": "Use no commas.", "instruction_id_list": ["punctuation:no_comma"],
        "kwargs": "[{}]"}, "None here.", "One, here."),
    "svamp, numbers": ("svamp", {
        "Body": "Jim had 9 pens.", "Question": "How many?", "Answer": 9.0}, "9", "8"),
    "olympiadbench, several answers": ("olympiadbench", {
        "question": "Find all $x$ with $x^2 = 4$.", "final_answer": ["2", "-2"], "context": None},
        "\\boxed{-2, 2}", "\\boxed{2}"),
}  # fmt: skip
