"""Which files check a run, by the conventions of test frameworks and verifiers for their paths."""

from __future__ import annotations

import re

_CODE = r"(?:py|[cm]?[jt]sx?|go|rb|java|kt|rs|cc?|cpp|cs|php|sh|swift|scala|exs)"
_CHECKER_FILE = r"\.(?:py|sh|js|ts|ya?ml|json|toml)$"

TEST_FILE = re.compile(
    rf"(?:^|/)(?:test_[^/]*|[^/]*_(?:test|spec)|[^/]*\.(?:test|spec)|conftest)\.{_CODE}$|"
    r"[a-z0-9](?:Tests?|Spec)\.(?:java|cs|kt|scala|swift|php)$"
)
"""A file of tests by its own name."""
TEST_PATH = re.compile(rf"(?:^|/)(?:tests?|__tests__|specs?|testing|unittests?)(?:/|$)|{TEST_FILE.pattern}")
"""A file of tests, or anything in a folder of tests."""
SUITE = re.compile(rf"(?:^|/)(?:tests?|__tests__|specs?)(?:/\*?|/.*(?:\.{_CODE}|\*))?$")
"""The folder of the tests, or code in it."""
GRADER = re.compile(
    r"(?:^|/)(?:graders?|verifier_logs|hidden_tests?|private_tests?)(?:/|$)|"
    r"^/(?:verifiers?|grading|judge|eval|evaluation|scoring)(?:/|$)|"
    r"(?:^|/)(?:graders?|auto_?grader|grade_submission|verify_solution|check_answer|check_solution|score_submission|run_tests?|"
    rf"test_runner|reward_fn|reward_function){_CHECKER_FILE}"
)
"""What can hardly be anything but the check of the task."""
CHECKER = re.compile(
    rf"{GRADER.pattern}|(?:^|/)(?:grading|verifiers?|judges?)(?:/|$)|(?:^|/)(?:grading|grade|verifier|judge|reward){_CHECKER_FILE}"
)
"""What may be the check of the task, or a part of the product of that name."""
TEST_RUNNER = re.compile(r"(?:^|/)(?:run_tests?|test_runner)\.(?:py|sh|js|ts)$")
VERDICT = re.compile(
    r"(?:^|/)(?:reward|verdict)\.(?:txt|json)$|(?:^|/)logs/verifier/|(?:^|/)(?:graders?|verifiers?|grading)/[^/]*\.(?:txt|json|xml)$"
)
RESULT = re.compile(
    rf"{VERDICT.pattern}|(?:^|/)(?:score|grade)\.(?:txt|json)$|(?:^|/)(?:test_results?|grading_results?)\.(?:json|xml)$"
)
"""A verdict, or a file of results of that name."""
SECRET = re.compile(
    r"(?:^|[/_-])(?:answer[_-]?keys?|hidden[_-]tests?|private[_-]tests?|held[_-]?out[_-]tests?|gold[_-](?:patch|solution)|"
    r"reference[_-]solutions?|test[_-]answers?|oracle[_-]solution|grader[_-]answers?)\b|"
    r"(?:^|/)(?:graders?|auto_?grader|grading_script|reward_fn|reward_function)\.(?:txt|json|jsonl|csv|ya?ml|md|py)$|"
    r"(?:^|/)graders?/|^/(?:\w+/)?verifiers?/",
    re.IGNORECASE,
)
LABELS = re.compile(
    r"(?:^|[/_-])(?:ground[_-]?truths?|expected[_-](?:answers?|outputs?)|gold[_-](?:answers?|labels?))(?:\b|[._*])|"
    r"(?:^|/)answers?\.(?:txt|json|jsonl|csv|ya?ml|md|py)$|(?:^|/)answers/|(?:^|/)solutions?\.(?:txt|json|jsonl|csv|ya?ml|md)$",
    re.IGNORECASE,
)
"""What may be the answers of the task, or data of that name."""
FIXTURE = re.compile(r"(?:^|/)(?:fixtures?|testdata|test_data|snapshots?)/")
CI = re.compile(
    r"(?:^|/)\.github/workflows/|\.gitlab-ci\.yml$|(?:^|/)\.circleci/|(?:^|/)Jenkinsfile$|azure-pipelines|"
    r"(?:^|/)(?:tox\.ini|noxfile\.py|[Mm]akefile|justfile|Rakefile)$|(?:^|/)run_tests?[^/]*\.sh$|(?:^|/)test\.sh$"
)
SETTINGS = re.compile(
    r"(?:^|/)(?:pytest\.ini|setup\.cfg|pyproject\.toml|tox\.ini|conftest\.py|(?:jest|vitest)\.config\.\w+|package\.json|"
    r"\.mocharc\.\w+|karma\.conf\.js)$"
)
"""Settings of test runners."""
INTERPRETER = re.compile(r"(?:^|/)(?:s?bin)/(?:pytest|python3?|node|npm|go|cargo|diff|make|bash)$")
SITE = re.compile(r"(?:^|/)(?:sitecustomize|usercustomize)\.py$")
SCRATCH = re.compile(
    r"^/tmp/|^/var/tmp/|(?:^|/)(?:__pycache__|\.pytest_cache|node_modules|\.mypy_cache|htmlcov|build|dist)(?:/|$)|"
    r"\.(?:pyc|log|tmp|orig|rej)$"
)
"""Files that nobody checks."""

ALL = (TEST_PATH, CHECKER, RESULT, SECRET, LABELS, CI, SETTINGS)
"""Everything that has to do with how a run is checked."""
